"""The events by which a server of Anthropic's dialect would have streamed a message that came in one piece."""

from collections.abc import Iterator
from json import dumps
from typing import Any

from llmproxy.dialects.anthropic.empties import write_empties
from llmproxy.dialects.sse import data_event

Members = dict[str, Any]

# Members that are known only at the end of a message.
_LAST = ("stop_reason", "stop_sequence", "stop_details")
# By the kind of a block: its members that come in pieces, and the kinds of these.
_PIECES = {
    "text": (("text", "text_delta"),),
    "thinking": (("thinking", "thinking_delta"), ("signature", "signature_delta")),
}


def message_as_events(message: Members) -> bytes:
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    begun.pop("stop_details", None)
    events: list[Members] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(message["content"]):
        write_empties(block)
        events += [{**each, "index": index} for each in _of_block(block)]
    # An empty word says that it has ended.
    last = {name: message[name] for name in _LAST if name in message}
    last["stop_reason"] = message.get("stop_reason") or ""
    usage = {"usage": message["usage"]} if message.get("usage") else {}
    events += [{"type": "message_delta", "delta": last, **usage}, {"type": "message_stop"}]
    return b"".join(map(data_event, events))


def _of_block(block: Members) -> Iterator[Members]:
    pieces = [*_pieces_of(block)]
    begun = {**block}
    for member, _ in _PIECES.get(block["type"], ()):
        begun[member] = ""
    if block["type"] == "tool_use":
        begun["input"] = {}
    if block.get("citations"):
        begun["citations"] = []
    yield {"type": "content_block_start", "content_block": begun}
    for piece in pieces:
        yield {"type": "content_block_delta", "delta": piece}
    yield {"type": "content_block_stop"}


def _pieces_of(block: Members) -> Iterator[Members]:
    for member, kind in _PIECES.get(block["type"], ()):
        if block[member]:
            yield {"type": kind, member: block[member]}
    if block["type"] == "tool_use":
        yield {"type": "input_json_delta", "partial_json": dumps(block["input"])}
    for citation in block.get("citations") or ():
        yield {"type": "citations_delta", "citation": citation}
