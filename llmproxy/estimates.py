"""Bounds the tokens of a prompt before a provider has counted them.

A call reserves this bound and is charged the tokens that the provider reports. No tokenizer is downloaded: all
tokenizers in use merge bytes pair by pair, which gives a bound for any vocabulary.

- A token holds at least one byte. So a text has at most as many tokens as bytes of UTF-8, or bytes of its
  compatibility form (NFKC), to which some tokenizers convert it first.
- Every pair of the letters ``a b c d e f g h i l m n o p r s t u w``, or of a space and one of them, is a token. So
  a run of ``n`` such letters, with the space before it, has at most ``(2n + 1) / 3`` tokens.
- The rare letters ``j k q v x y z``, capitals, digits, punctuation, line ends and other scripts count one token for
  each byte.
- Each word of ``whole_words.txt``, the most frequent ones of program and English text, is one token with the space
  before it. Up to four spaces in a row are one token.
- Each message, call and tool has a frame. An image counts the tokens that its model's row or its provider sets.

Real tokenizers count a third to a half of the bound for prose, program text and lists, at least a fifth for other
scripts, and nearly all of it for random text; ``tests/llmproxy/test_estimates.py`` compares them. The computation
blocks other requests, so it makes a few passes over a prompt whatever its content.
"""

import re
from json import dumps
from pathlib import Path
from typing import Any
from unicodedata import combining, normalize

MESSAGE_FRAME = 8
PROMPT_FRAME = 16
# Bytes per token of an answer that was cut without a report.
BYTES_PER_DELIVERED_TOKEN = 4
SPACES_PER_TOKEN = 4
# Bytes of a prompt in which whole words are looked up, the slowest step; words after them count as letters.
WHOLE_WORDS_WITHIN = 1024 * 1024
# Characters that are normalized at once: normalizing takes the square of the number of combining marks.
SLICE = 64
# The most bytes that composing a character saves. A slice that begins with a mark may compose otherwise than the whole.
MAX_COMPOSED = 6
# Characters by which the form of a prompt may be longer than the prompt; beyond that the worst expansion counts.
MAX_GROWTH = 256 * 1024
# The worst expansion: bytes of the form per byte of the text (U+FDFA).
MAX_EXPANSION = 11

_LETTERS = b"abcdefghilmnoprstuw"
# Maps bytes to three kinds: letters that pair, spaces, and all others.
_KINDS = bytes(ord("a") if byte in _LETTERS else 32 if byte == 32 else 0 for byte in range(256))
# A word between a space and a byte that is no letter. An apostrophe may belong to the word's token.
_WORD = re.compile(rb" [a-z]++(?![A-Z'\x80-\xff])")


def _pairing_bound(data: bytes) -> int:
    """The bound without whole words: the number of bytes, less the savings by pairs and by rows of spaces."""
    kinds = b"\0" + data.translate(_KINDS)
    # A space belongs to the word after it. A run of n bytes that pair saves (n + 1) // 3.
    runs = kinds.replace(b" a", b"\0aa")
    saved = runs.count(b"aaa") + runs.replace(b"aaa", b"\0").count(b"aa")
    # The last of several spaces belongs to the word. The n others save n - 1 tokens, less one for each four.
    gaps = kinds.replace(b"a", b"\0").replace(b"\0 ", b"\0")
    saved += gaps.count(b" ") - gaps.count(b"\0 ") - gaps.count(b" " * SPACES_PER_TOKEN)
    return len(data) - saved


WHOLE_WORDS = [
    b" " + word for word in Path(__file__).with_name("whole_words.txt").read_bytes().split()
]
_WORD_SAVINGS = {word: _pairing_bound(word) - 1 for word in WHOLE_WORDS}


def prompt_tokens(members: dict[str, Any], *, image_tokens: int) -> int:
    """The bound for the prompt of a valid call; each image counts ``image_tokens``."""
    tokens = PROMPT_FRAME + _images_in(members) * image_tokens
    texts: list[str | None] = []
    for message in members["messages"]:
        tokens += MESSAGE_FRAME
        texts += _texts(message.get("content"))
        texts += (message.get("name"), message.get("refusal"), message.get("tool_call_id"))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            tokens += MESSAGE_FRAME
            texts += (call["id"], function["name"], function["arguments"])
    for tool in members.get("tools") or ():
        tokens += MESSAGE_FRAME
        texts.append(_json(tool))
    texts += (_json(members[name]) for name in _PROMPT_MEMBERS if name in members)
    present = [text for text in texts if text]
    # A line end is one token and pairs with nothing, so the bound of the joined texts is the sum of theirs.
    return tokens + text_tokens("\n".join(present)) - max(len(present) - 1, 0)


def _images_in(members: dict[str, Any]) -> int:
    """The number of images in a valid call."""
    contents = (message.get("content") for message in members["messages"])
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return sum(part["type"] == "image_url" for part in parts)


def text_tokens(text: str) -> int:
    """The bound for a text."""
    data = _bytes(text)
    bound = _bytes_bound(data)
    if text.isascii():
        return bound
    forms = _forms(text)
    if forms is None:
        return MAX_EXPANSION * len(data)
    # The slices may compose less than the whole, which only raises the bound, or otherwise at their edges.
    edges = MAX_COMPOSED * sum(combining(form[0]) > 0 for form in forms[1:])
    form = "".join(forms)
    return max(bound, edges + (bound if form == text else _bytes_bound(_bytes(form))))


def _bytes_bound(data: bytes) -> int:
    # The search ends at a space, so that it cuts no word in two.
    end = len(data) if len(data) <= WHOLE_WORDS_WITHIN else data.rfind(b" ", 0, WHOLE_WORDS_WITHIN)
    return _pairing_bound(data) - sum(
        filter(None, map(_WORD_SAVINGS.get, _WORD.findall(data, 0, end)))
    )


def _forms(text: str) -> list[str] | None:
    """The compatibility forms of a text's slices; None where they are far longer than the text."""
    forms, room = [], MAX_GROWTH
    for start in range(0, len(text), SLICE):
        piece = text[start : start + SLICE]
        form = normalize("NFKC", piece)
        room -= max(len(form) - len(piece), 0)
        if room < 0:
            return None
        forms.append(form)
    return forms


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def delivered_tokens(*, deltas: int, size: int) -> int:
    """The estimate for an answer without a report: one token per delta or per four bytes, whichever is more."""
    return max(deltas, -(-size // BYTES_PER_DELIVERED_TOKEN))


# Members that a provider may add to its prompt beside messages and tools.
_PROMPT_MEMBERS = ("response_format", "tool_choice")


def _json(value: Any) -> str:
    return dumps(value, ensure_ascii=False)


def _texts(content: Any) -> list[str | None]:
    if content is None or isinstance(content, str):
        return [content]
    return [part.get("text") or part.get("refusal") for part in content]
