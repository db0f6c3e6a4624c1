"""How many tokens a prompt can cost, before anyone has counted them.

No tokenizer is downloaded, so this is a bound by kinds of characters, for the byte-pair tokenizers in use:

- letters and spaces in words: one token for two of them (English averages four or five to a token), but
  capitals, and as many small letters beside them, one each: mixed case is cut finely;
- digits, punctuation, line ends, and runs of 32 and more without a space (keys, base64): one each;
- anything beyond ASCII: one for each byte of UTF-8, which no byte-level tokenizer exceeds;
- each message and each tool: what its frame costs; each image: what one in high detail costs. Models that ask
  more for an image than that are settled to what they report, as all are.

The reservation of a call is this bound; what it is charged is what the provider reports.
"""

import re
from json import dumps
from typing import Any

MESSAGE_FRAME = 8
PROMPT_FRAME = 16
# A high-detail image of 2048 by 2048 in tiles of 512: 85 and 16 times 170.
IMAGE_TOKENS = 2_805
# Characters to a token where an answer was cut and its provider told nothing.
BYTES_PER_DELIVERED_TOKEN = 4

_SMALL = bytes([*range(ord("a"), ord("z") + 1), ord(" ")])
_CAPITAL = bytes(range(ord("A"), ord("Z") + 1))
_LONG_RUN = re.compile(rb"[A-Za-z0-9+/=_-]{32,}")


def prompt_tokens(members: dict[str, Any]) -> int:
    """The most that the prompt of a checked call costs, in tokens."""
    tokens = PROMPT_FRAME
    for message in members["messages"]:
        tokens += MESSAGE_FRAME + _content(message.get("content"))
        tokens += _text(message.get("name")) + _text(message.get("refusal"))
        tokens += _text(message.get("tool_call_id"))
        for call in message.get("tool_calls") or ():
            tokens += _text(call["id"])
            tokens += (
                MESSAGE_FRAME
                + _text(call["function"]["name"])
                + _text(call["function"]["arguments"])
            )
    for tool in members.get("tools") or ():
        tokens += MESSAGE_FRAME + _text(dumps(tool, ensure_ascii=False))
    if "response_format" in members:
        tokens += _text(dumps(members["response_format"], ensure_ascii=False))
    return tokens


def delivered_tokens(*, deltas: int, size: int) -> int:
    """Tokens of an answer that nobody reported: at least one a delta, and one for four bytes of UTF-8."""
    return max(deltas, -(-size // BYTES_PER_DELIVERED_TOKEN))


def _content(content: Any) -> int:
    if content is None or isinstance(content, str):
        return _text(content)
    return sum(
        IMAGE_TOKENS
        if part["type"] == "image_url"
        else _text(part.get("text") or part.get("refusal"))
        for part in content
    )


def _text(text: str | None) -> int:
    if not text:
        return 0
    data = text.encode("utf-8", "surrogatepass")
    halved = _plain(data) - sum(_plain(run) for run in _LONG_RUN.findall(data))
    return len(data) - max(0, halved) // 2


def _plain(data: bytes) -> int:
    """Small letters and spaces, less one for each capital beside them."""
    small = len(data) - len(data.translate(None, _SMALL))
    capital = len(data) - len(data.translate(None, _CAPITAL))
    return small - capital
