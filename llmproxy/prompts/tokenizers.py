"""OpenAI's tokenizers, which count the tokens of texts.

The library takes 68 MB and half a second to load, the vocabulary of nearly all routes another 65 MB: the server loads
both before it forks (``config/wsgi.py``), and a command that counts nothing never does. That of older models (33 MB,
25 ms) is loaded by the first prompt that is counted in it. The library counts 15 to 40 million characters of prose a
second, 4 million of the worst text, and keeps the interpreter meanwhile: a long prompt is counted in pieces on a thread
of its own. Other requests run between them, and prompts take turns.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Protocol

from django.utils.module_loading import import_string

from config.platform.concurrency.greenlets import WorkerThread
from config.platform.db.connections import release_connection

# The library refuses a text of more than 200,000 tokens, and a character has at most four.
PIECE = 25_000
# The cost of a text beside its characters, in characters.
PER_TEXT = 50

# A program may have many calls of one person under way.
counting = WorkerThread(
    "Many long prompts are being counted just now. Please try again in a moment.",
    most_of_a_person=100,
)


class Vocabulary(Protocol):
    """A tokenizer of the library."""

    def encode_ordinary(self, text: str) -> list[int]: ...


@cache
def vocabulary(name: str) -> Vocabulary:
    """The tokenizer of that name; the first call loads it."""
    found: Vocabulary = import_string("bpe_openai.get_encoding")(name)
    return found


def load() -> None:
    """Loads the vocabulary that nearly all routes count in."""
    vocabulary("o200k_base")


def tokens_in(texts: Iterable[str], *, tokenizer: str) -> int:
    """The tokens of all texts. A text that is cut may have a token or two more for each ``PIECE``."""
    encode = vocabulary(tokenizer).encode_ordinary
    tokens, room, pieces = 0, PIECE, list[str]()
    for text in texts:
        for start in range(0, len(text), PIECE):
            piece = text[start : start + PIECE]
            if (room := room - len(piece) - PER_TEXT) < 0 and pieces:
                # Others may wait for this request's connection.
                release_connection()
                tokens += counting.run(_count, encode, pieces)
                pieces, room = [], PIECE - len(piece)
            pieces.append(piece)
    return tokens + _count(encode, pieces)


def _count(encode: Callable[[str], list[int]], pieces: list[str]) -> int:
    return sum(len(encode(piece)) for piece in pieces)
