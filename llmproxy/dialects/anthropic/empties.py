"""Writes what servers leave out of the blocks of an answer, and of their pieces, because it is empty.

SDKs add each piece to what its block begins with, and callers read the member of a block by its kind.
"""

from typing import Any
from uuid import uuid4

from llmproxy.dialects.sse import Event

LAST = b"[DONE]"
# By the kind of a block or piece.
_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "redacted_thinking": {"data": ""},
    "tool_use": {"input": {}},
    "text_delta": {"text": ""},
    "thinking_delta": {"thinking": ""},
    "signature_delta": {"signature": ""},
    "input_json_delta": {"partial_json": ""},
}


def write_empties(part: dict[str, Any]) -> bool:
    """Writes the members of a block, or of a piece of one, that are missing, and says whether one was."""
    kind = part["type"]
    missing = {
        name: type(empty)()
        for name, empty in _EMPTY.get(kind, {}).items()
        if part.get(name) is None
    }
    if kind == "tool_use" and not part.get("id"):
        # A result has to name its call.
        missing["id"] = f"toolu_{uuid4().hex[:24]}"
    part |= missing
    return bool(missing)


def kind_of(given: dict[str, Any], event: Event) -> str:
    """The kind of an event, by its name where its data does not say it. Raises ``KeyError`` without either."""
    if not given.get("type"):
        if event.event is None:
            raise KeyError("type")
        given["type"] = event.event
    kind: str = given["type"]
    return kind
