"""How the stand-in counts tokens. Simple and exact, so that tests can compute it.

A *piece* is a run of one to eight ASCII letters, digits or underscores, or one other character that
is not white space; white space belongs to the piece after it, and at the end of a text it is a
piece of its own. A text has as many tokens as pieces: `"Hello, world"` has 3, `"naïve"` has 3
(`na`, `ï`, `ve`), `"internationalisation"` has 3, the empty text has 0.

Output: the pieces of the answer; for tool calls, the pieces of every name and of every argument
text. A stream sends one piece in each delta (a tool's name comes whole, in the call's first delta).

Prompt: 3, and for each message 4 and its content, refusal, name, tool calls (names and arguments)
and `tool_call_id`; 85 for each image, whatever its size; the pieces of `tools` and of the schema in
`response_format`, each written as compact JSON. A directive counts like any other text.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

PIECE = re.compile(r"\s*(?:[A-Za-z0-9_]{1,8}|\S)|\s+")
PER_PROMPT = 3
PER_MESSAGE = 4
PER_IMAGE = 85


def split(text: str) -> list[str]:
    """The pieces of `text`; joined again they are `text`."""
    return PIECE.findall(text)


def first_pieces(text: str, limit: int) -> list[str]:
    """At most `limit` pieces of `text`, without looking at the rest of it."""
    return [match.group() for match in islice(PIECE.finditer(text), limit)]


def count(text: str) -> int:
    """How many tokens `text` has."""
    return len(PIECE.findall(text))


def count_prompt(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]], schema: dict[str, Any] | None
) -> int:
    """How many tokens a checked request's input has."""
    total = PER_PROMPT + sum(PER_MESSAGE + _count_message(message) for message in messages)
    for described in (tools or None, schema):
        if described is not None:
            total += count(json.dumps(described, separators=(",", ":"), ensure_ascii=False))
    return total


def _count_message(message: dict[str, Any]) -> int:
    images = sum(1 for part in parts(message) if part["type"] == "image_url")
    return PER_IMAGE * images + sum(count(text) for text in _texts(message))


def _texts(message: dict[str, Any]) -> Iterator[str]:
    for part in parts(message):
        if part["type"] != "image_url":
            yield part[part["type"]]
    for member in ("refusal", "name", "tool_call_id"):
        yield message.get(member) or ""
    for call in message.get("tool_calls") or ():
        yield call["function"]["name"]
        yield call["function"]["arguments"]


def parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message's content as a list of parts, also where it is a plain text or null."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content or []


def text_of(message: dict[str, Any]) -> str:
    """The text of a checked message, its parts joined by line ends."""
    return "\n".join(part["text"] for part in parts(message) if part["type"] == "text")
