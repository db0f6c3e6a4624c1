"""OpenAI's tokenizers, which count the tokens of texts.

Their vocabularies take a second to load and 110 MB, so the server loads them before it forks (``config/wsgi.py``), and
a command that counts nothing never does. The library counts 15 to 40 million characters of prose a second, 4 million of
the worst text, and keeps the interpreter meanwhile: a long text is counted in pieces, and other requests run between
them.
"""

import time
from collections.abc import Iterable
from functools import cache
from typing import Protocol

from django.utils.module_loading import import_string

from config.db.connections import release_connection

# The library refuses a text of more than 200,000 tokens, and a character has at most four.
PIECE = 25_000
# What a text costs beside its characters, in characters.
PER_TEXT = 50
# gevent looks for other requests' sockets and timers only in a sleep that is longer than none.
PAUSE_SECONDS = 0.0005


class Vocabulary(Protocol):
    """A tokenizer of the library."""

    def encode_ordinary(self, text: str) -> list[int]: ...


@cache
def vocabulary(name: str) -> Vocabulary:
    """The tokenizer of that name; the first call loads it."""
    found: Vocabulary = import_string("bpe_openai.get_encoding")(name)
    return found


def load() -> None:
    """Loads both vocabularies."""
    for name in ("o200k_base", "cl100k_base"):
        vocabulary(name)


def tokens_in(texts: Iterable[str], *, tokenizer: str) -> int:
    """The tokens of all texts. A text that is cut may have a token or two more for each ``PIECE``."""
    encode = vocabulary(tokenizer).encode_ordinary
    tokens, room = 0, PIECE
    for text in texts:
        for start in range(0, len(text), PIECE):
            piece = text[start : start + PIECE]
            if (room := room - len(piece) - PER_TEXT) < 0:
                # Others may wait for this request's connection.
                release_connection()
                time.sleep(PAUSE_SECONDS)
                room = PIECE
            tokens += len(encode(piece))
    return tokens
