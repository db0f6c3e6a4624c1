"""Translates Anthropic's message to a chat completion.

Thinking becomes ``reasoning_content``, and with its signatures ``reasoning_details`` in OpenRouter's shape: a caller
who gives these back lets the model think on after the call of a tool. The ``id`` of a thought is that of the call
before it, since the shape has one list of thoughts and one of calls.
"""

import time
from json import dumps
from typing import Any
from uuid import uuid4

from llmproxy.dialects.anthropic.blocks import SIGNED
from llmproxy.dialects.anthropic.empties import write_empties
from llmproxy.dialects.ends import finish_reason, unsaid
from llmproxy.dialects.protocol import WholeAnswer
from llmproxy.dialects.reading import size_of, usage_of
from llmproxy.dialects.usage import reported


def completion(message: dict[str, Any], *, provider: str) -> WholeAnswer:
    """The completion that a message becomes."""
    translated, size = _message(message["content"])
    reason = message.get("stop_reason") or unsaid(has_calls="tool_calls" in translated)
    choice = {
        "index": 0,
        "message": translated,
        "finish_reason": finish_reason(reason, provider=provider),
        "logprobs": None,
    }
    answer = {
        "id": message.get("id") or made_id(),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": message["model"],
        "choices": [choice],
    }
    known = reported(message.get("usage"))
    if known is not None:
        answer["usage"] = usage_of(known)
    return WholeAnswer(answer, known, size)


def made_id() -> str:
    """The id of a completion whose message has none."""
    return f"chatcmpl-{uuid4().hex}"


def _message(blocks: list[dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """The assistant's message, and its bytes that count as output."""
    text, thinking, hidden = "", "", 0
    details: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for block in blocks:
        write_empties(block)
        match block["type"]:
            case "text":
                text += block["text"]
            case "thinking":
                thinking += block["thinking"]
                said = thought(block["thinking"], len(details))
                details.append(said | signature(block.get("signature"), after=_last_id(calls)))
            case "redacted_thinking":
                hidden += len(block["data"])
                after = _last_id(calls)
                details.append(hidden_thought(block["data"], len(details), after=after))
            case "tool_use":
                calls.append(tool_call(block["id"], block["name"], arguments_of(block)))
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if calls:
        message |= {"content": text or None, "tool_calls": calls}
    if thinking:
        message["reasoning_content"] = thinking
    if details:
        message["reasoning_details"] = details
    functions = [call["function"] for call in calls]
    texts = [text, thinking, *(each["name"] + each["arguments"] for each in functions)]
    return message, hidden + sum(map(size_of, texts))


def thought(text: str, index: int) -> dict[str, Any]:
    return {"type": "reasoning.text", "text": text, "index": index}


def signature(given: str | None, *, after: str | None) -> dict[str, Any]:
    """The members that sign a thought after a call; a server that signs none wants none back."""
    return {"signature": given, "format": SIGNED, **_place(after)} if given else {}


def hidden_thought(data: str, index: int, *, after: str | None) -> dict[str, Any]:
    said = {"type": "reasoning.encrypted", "data": data, "format": SIGNED, "index": index}
    return said | _place(after)


def _place(after: str | None) -> dict[str, str]:
    return {} if after is None else {"id": after}


def _last_id(calls: list[dict[str, Any]]) -> str | None:
    return calls[-1]["id"] if calls else None


def arguments_of(block: dict[str, Any]) -> str:
    """The arguments that a tool block starts with; an empty object without any."""
    return dumps(block.get("input") or {})


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
