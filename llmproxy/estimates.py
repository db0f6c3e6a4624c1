"""Bounds the tokens that a prompt can cost, before a provider has counted them.

No tokenizer is downloaded. The tokenizers in use join bytes pair by pair, which bounds what they can make of a
text without knowing their vocabularies:

- no byte is cut, so anything costs at most one token for each of its bytes of UTF-8, or of those of its
  compatibility form (NFKC), in which some tokenizers write it first;
- a pair of the letters ``a b c d e f g h i l m n o p r s t u w``, or of a space and one of them, is a token, so
  two of them never stay apart: a run of ``n``, with the space before it, is at most ``(2n + 1) / 3`` tokens;
- the rare letters ``j k q v x y z``, capitals, digits, punctuation, line ends and all beyond ASCII count one for
  each byte;
- the words of ``whole_words.txt``, the most frequent ones of program and English text, are a token each with the
  space before them, and so are up to four spaces in a row;
- each message, call and tool has a frame; each image costs what its model's row or its provider says.

Other requests wait meanwhile, so it takes a few passes over a prompt, whatever its content.

Prose, program text and lists come to a half or a third of that, other scripts to a fifth at the least, text
without sense to nearly all of it; ``tests/llmproxy/test_estimates.py`` holds it to real tokenizers. The reservation
of a call is this bound; what it is charged is what the provider reports.
"""

import re
from json import dumps
from pathlib import Path
from typing import Any
from unicodedata import combining, normalize

MESSAGE_FRAME = 8
PROMPT_FRAME = 16
# Bytes to a token where an answer was cut without a report.
BYTES_PER_DELIVERED_TOKEN = 4
SPACES_PER_TOKEN = 4
# Words are looked up in so many bytes of a prompt, as that takes the longest; those behind cost what letters cost.
WORDS_WITHIN = 1024 * 1024

# Characters that are brought into their form at once: the marks among them are sorted in the square of their number.
SLICE = 64
# The bytes that composing can save at one character. Cut before a mark, another may be composed than in the whole.
MOST_COMPOSED = 6
# Characters by which the form of a whole prompt is longer at most; behind that it counts as the worst there is.
MOST_GROWTH = 256 * 1024
# The bytes of the form for one of the text, at the worst (U+FDFA).
MOST_EXPANSION = 11

_LETTERS = b"abcdefghilmnoprstuw"
# Letters that pair, spaces, and what is neither.
_KINDS = bytes(ord("a") if byte in _LETTERS else 32 if byte == 32 else 0 for byte in range(256))
# A word between a space and what is no letter; tokenizers may take an apostrophe for a part of it.
_WHOLE = re.compile(rb" [a-z]++(?![A-Z'\x80-\xff])")


def _joined(data: bytes) -> int:
    """The bound without regard to whole words: the bytes, less what pairs and gaps save."""
    kinds = b"\0" + data.translate(_KINDS)
    # A space belongs to the word behind it. A run of n that pair saves (n + 1) // 3.
    runs = kinds.replace(b" a", b"\0aa")
    saved = runs.count(b"aaa") + runs.replace(b"aaa", b"\0").count(b"aa")
    # Of several spaces the last one is no part of the gap; n of a gap save all but one, and one for each four.
    gaps = kinds.replace(b"a", b"\0").replace(b"\0 ", b"\0")
    saved += gaps.count(b" ") - gaps.count(b"\0 ") - gaps.count(b" " * SPACES_PER_TOKEN)
    return len(data) - saved


WHOLE_WORDS = [
    b" " + word for word in Path(__file__).with_name("whole_words.txt").read_bytes().split()
]
_SPARED = {word: _joined(word) - 1 for word in WHOLE_WORDS}


def prompt_tokens(members: dict[str, Any], *, image_tokens: int) -> int:
    """The most that the prompt of a checked call costs, in tokens; ``image_tokens`` for each image in it."""
    tokens = PROMPT_FRAME + images_in(members) * image_tokens
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
    texts += (_json(members[name]) for name in _IN_WORDS if name in members)
    said = [text for text in texts if text]
    # A line's end joins nothing and costs one, so all together cost what each does.
    return tokens + text_tokens("\n".join(said)) - max(len(said) - 1, 0)


def images_in(members: dict[str, Any]) -> int:
    """How many images a checked call shows."""
    contents = (message.get("content") for message in members["messages"])
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return sum(part["type"] == "image_url" for part in parts)


def text_tokens(text: str) -> int:
    """The most that a text costs, in tokens."""
    data = _bytes(text)
    most = _said(data)
    if text.isascii():
        return most
    forms = _forms(text)
    if forms is None:
        return MOST_EXPANSION * len(data)
    # Also where it composes less than it would in the whole, a form costs no less, but for what cuts can change.
    changed = MOST_COMPOSED * sum(combining(form[0]) > 0 for form in forms[1:])
    form = "".join(forms)
    return max(most, changed + (most if form == text else _said(_bytes(form))))


def _said(data: bytes) -> int:
    # Up to a space, so that no word is taken for one that ends there; with none there is no word either.
    end = len(data) if len(data) <= WORDS_WITHIN else data.rfind(b" ", 0, WORDS_WITHIN)
    return _joined(data) - sum(filter(None, map(_SPARED.get, _WHOLE.findall(data, 0, end))))


def _forms(text: str) -> list[str] | None:
    """The compatibility forms of a text's slices; None where they are far longer than it."""
    forms, room = [], MOST_GROWTH
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
    """The tokens of an answer without a report: at least one a delta, and one for four bytes of UTF-8."""
    return max(deltas, -(-size // BYTES_PER_DELIVERED_TOKEN))


# Members that a provider may put into its prompt beside messages and tools.
_IN_WORDS = ("response_format", "tool_choice")


def _json(value: Any) -> str:
    return dumps(value, ensure_ascii=False)


def _texts(content: Any) -> list[str | None]:
    if content is None or isinstance(content, str):
        return [content]
    return [part.get("text") or part.get("refusal") for part in content]
