"""How many tokens a prompt can cost, before anyone has counted them.

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

Prose, program text and lists come to a half or a third of that, other scripts to a fifth at the least, text
without sense to nearly all of it; ``tests/llmproxy/test_estimates.py`` holds it to real tokenizers. The reservation
of a call is this bound; what it is charged is what the provider reports.
"""

import re
from collections import Counter
from json import dumps
from pathlib import Path
from typing import Any
from unicodedata import is_normalized, normalize

MESSAGE_FRAME = 8
PROMPT_FRAME = 16
# Characters to a token where an answer was cut and its provider told nothing.
BYTES_PER_DELIVERED_TOKEN = 4
SPACES_PER_TOKEN = 4

_RUN = re.compile(rb" ?[a-ilmnopr-uw]+")
# The last space before a word belongs to it.
_GAP = re.compile(rb" +(?= )")
# A word between a space and what is no letter; tokenizers may take an apostrophe for a part of it.
_WHOLE = re.compile(rb" [a-z]++(?![A-Z'\x80-\xff])")


def _joined(data: bytes) -> int:
    """The bound without regard to whole words."""
    runs = Counter(map(len, _RUN.findall(data)))
    gaps = Counter(map(len, _GAP.findall(data)))
    return (
        len(data)
        - sum(number * (length - (2 * length + 1) // 3) for length, number in runs.items())
        - sum(number * (length - 1 - length // SPACES_PER_TOKEN) for length, number in gaps.items())
    )


WHOLE_WORDS = [
    b" " + word for word in Path(__file__).with_name("whole_words.txt").read_bytes().split()
]
_SPARED = {word: _joined(word) - 1 for word in WHOLE_WORDS}


def prompt_tokens(members: dict[str, Any], *, image_tokens: int) -> int:
    """The most that the prompt of a checked call costs, in tokens; ``image_tokens`` for each image in it."""
    tokens = PROMPT_FRAME
    for message in members["messages"]:
        tokens += MESSAGE_FRAME + _content(message.get("content"), image_tokens)
        tokens += text_tokens(message.get("name")) + text_tokens(message.get("refusal"))
        tokens += text_tokens(message.get("tool_call_id"))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            tokens += MESSAGE_FRAME + text_tokens(call["id"])
            tokens += text_tokens(function["name"]) + text_tokens(function["arguments"])
    for tool in members.get("tools") or ():
        tokens += MESSAGE_FRAME + _json(tool)
    return tokens + sum(_json(members[name]) for name in _IN_WORDS if name in members)


def images_in(members: dict[str, Any]) -> int:
    """How many images a checked call shows."""
    contents = (message.get("content") for message in members["messages"])
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return sum(part["type"] == "image_url" for part in parts)


def text_tokens(text: str | None) -> int:
    """The most that a text costs, in tokens."""
    if not text:
        return 0
    most = _said(text)
    if not text.isascii() and not is_normalized("NFKC", text):
        most = max(most, _said(normalize("NFKC", text)))
    return most


def _said(text: str) -> int:
    data = text.encode("utf-8", "surrogatepass")
    whole = filter(_SPARED.__contains__, _WHOLE.findall(data))
    return _joined(data) - sum(map(_SPARED.__getitem__, whole))


def delivered_tokens(*, deltas: int, size: int) -> int:
    """Tokens of an answer that nobody reported: at least one a delta, and one for four bytes of UTF-8."""
    return max(deltas, -(-size // BYTES_PER_DELIVERED_TOKEN))


# What a provider may put into its prompt beside messages and tools.
_IN_WORDS = ("response_format", "tool_choice")


def _json(value: Any) -> int:
    return text_tokens(dumps(value, ensure_ascii=False))


def _content(content: Any, image_tokens: int) -> int:
    if content is None or isinstance(content, str):
        return text_tokens(content)
    return sum(
        image_tokens
        if part["type"] == "image_url"
        else text_tokens(part.get("text") or part.get("refusal"))
        for part in content
    )
