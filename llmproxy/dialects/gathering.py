"""Puts the events that a caller would get together to the answer in one piece.

The events are those of our translators, so that each has its numbers, ids and empty values.
"""

from json import loads
from typing import Any

Members = dict[str, Any]

# The members of a chunk that are not those of its completion.
_OF_CHUNKS = frozenset({"object", "choices", "usage"})
# The texts of a message and of its calls, which deltas bring in pieces; any other text comes whole.
_TEXTS = frozenset({
    "content", "refusal", "reasoning_content", "reasoning", "arguments", "input", "text", "summary", "data",
})  # fmt: skip
# The lists of parts that come in pieces by their number; other lists come one after another.
_NUMBERED = frozenset({"tool_calls", "reasoning_details"})


def completion_of(chunks: list[Members]) -> Members:
    """The chat completion of its chunks, of which there is one at least."""
    answer: Members = {"object": "chat.completion"}
    choices: dict[int, Members] = {}
    for chunk in chunks:
        answer |= {
            name: value
            for name, value in chunk.items()
            if name not in _OF_CHUNKS and value is not None
        }
        for each in chunk["choices"]:
            index = each.get("index") or 0
            made = choices.setdefault(index, {"index": index, "message": {"role": "assistant"}})
            _add(made["message"], each.get("delta") or {})
            beside = {name: each[name] for name in each.keys() - {"index", "delta"}}
            logprobs = beside.pop("logprobs", None)
            made |= {name: value for name, value in beside.items() if value is not None}
            if isinstance(logprobs, dict):
                made["logprobs"] = _joined(made.get("logprobs") or {}, logprobs)
        if chunk.get("usage"):
            answer["usage"] = chunk["usage"]
    for choice in choices.values():
        choice["message"].setdefault("content", None)
        for call in choice["message"].get("tool_calls") or ():
            call.pop("index", None)
    return answer | {"choices": [choices[index] for index in sorted(choices)]}


def _add(message: Members, delta: Members) -> None:
    """Adds a delta to a message, or a piece to one of its parts."""
    for name, value in delta.items():
        had = message.get(name)
        if name in _NUMBERED and isinstance(value, list):
            if had is None:
                message[name] = []
            _add_parts(message[name], value)
        elif value is None or had is None:
            message[name] = had if value is None else value
        elif isinstance(value, dict) and isinstance(had, dict):
            _add(had, value)
        elif isinstance(value, list) and isinstance(had, list):
            message[name] = [*had, *value]
        elif name in _TEXTS and isinstance(value, str) and isinstance(had, str):
            message[name] = had + value
        else:
            message[name] = value


def _add_parts(parts: list[Members], pieces: list[Members]) -> None:
    """Adds pieces to the parts whose number and kind they have; those without a number follow."""
    for piece in pieces:
        index = piece.get("index")
        same = (
            part
            for part in parts
            if index is not None
            and part.get("index") == index
            and part.get("type", "") == piece.get("type", part.get("type", ""))
        )
        if (part := next(same, None)) is None:
            parts.append({**piece})
        else:
            _add(part, piece)


def _joined(before: Members, more: Members) -> Members:
    """Lists one after another, for each member."""
    lists = {
        name: [*(before.get(name) or ()), *(more.get(name) or ())]
        for name in {**before, **more}
        if isinstance(before.get(name), list) or isinstance(more.get(name), list)
    }
    return {**before, **more, **lists}


def message_of(events: list[Members]) -> Members:
    """Anthropic's message of its events."""
    message: Members = {}
    blocks: dict[int, Members] = {}
    inputs: dict[int, str] = {}
    for event in events:
        match event["type"]:
            case "message_start":
                message = event["message"]
                blocks = dict(enumerate(message.get("content") or ()))
            case "content_block_start":
                blocks[event["index"]] = event["content_block"]
            case "content_block_delta":
                _add_piece(blocks, inputs, event["index"], event["delta"])
            case "message_delta":
                beside = {name: event[name] for name in event.keys() - {"type", "delta"}}
                message |= {**(event.get("delta") or {}), **beside}
    for index, text in inputs.items():
        # Cut at its limit, it is no JSON.
        blocks[index]["input"] = _arguments(text, blocks[index])
    return message | {"content": [blocks[index] for index in sorted(blocks)]}


def _add_piece(
    blocks: dict[int, Members], inputs: dict[int, str], index: int, delta: Members
) -> None:
    match delta["type"]:
        case "input_json_delta":
            inputs[index] = inputs.get(index, "") + delta["partial_json"]
        case "citations_delta":
            block = blocks[index]
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        case kind:
            member = kind.removesuffix("_delta")
            blocks[index][member] = blocks[index].get(member, "") + delta[member]


def _arguments(text: str, block: Members) -> Any:
    try:
        return loads(text or "{}")
    except ValueError:
        return block.get("input") or {}


def response_of(events: list[Members]) -> Members:
    """OpenAI's response of its events, of which the last has it."""
    response: Members = events[-1]["response"]
    return response
