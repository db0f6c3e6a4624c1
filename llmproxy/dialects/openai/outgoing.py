"""Conversations as requests to a server of OpenAI's dialect.

Thoughts and signatures go back as the server wrote them, because some refuse the second turn of a call of tools without
them. Others refuse them: OpenAI, which writes none, and Mistral, whose callers get them in another form than it wrote.
"""

from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from llmproxy.dialects.protocol import Target
from llmproxy.dialects.root_unions import NoObject, folded

Members = dict[str, Any]

_OPENAIS = (".openai.com", ".azure.com")
_REFUSING = (*_OPENAIS, ".mistral.ai")
# Read by providers of Anthropic's dialect alone.
_OF_ANTHROPIC = frozenset({"cache_control"})
_THOUGHTS = frozenset({
    "reasoning", "reasoning_content", "reasoning_details", "thinking_blocks", "extra_content",
})  # fmt: skip


def takes_thoughts(base_url: str) -> bool:
    """Returns whether the server at an address takes back what a model thought."""
    return not (urlsplit(base_url).hostname or "").endswith(_REFUSING)


def outgoing_members(members: Members, *, target: Target) -> Members:
    """The members of a valid call, without those that the target's server does not know."""
    if target.passes_all:
        return dict(members)
    dropped = _OF_ANTHROPIC if takes_thoughts(target.base_url) else _OF_ANTHROPIC | _THOUGHTS
    dropped -= target.members
    sent = {**members, "messages": [_message(each, dropped) for each in members["messages"]]}
    if "tools" in members:
        sent["tools"] = [_without(tool, dropped) for tool in members["tools"]]
        if wants_objects(target.base_url):
            sent["tools"] = [_with_object(tool) for tool in sent["tools"]]
    return sent


def wants_objects(base_url: str) -> bool:
    """Returns whether the server at an address refuses unions at the root of a tool's schema."""
    return (urlsplit(base_url).hostname or "").endswith(_OPENAIS)


def as_object(tool: Members) -> Members:
    """A function with an object at the root of its schema. One that is no object stays for the server to refuse."""
    if not (schema := tool.get("parameters")):
        return tool
    with suppress(NoObject):
        return {**tool, "parameters": folded(schema)}
    return tool


def _with_object(tool: Members) -> Members:
    return {**tool, "function": as_object(tool["function"])} if tool.get("function") else tool


def _message(message: Members, dropped: frozenset[str]) -> Members:
    sent = _without(message, dropped)
    if isinstance(content := sent.get("content"), list):
        parts = [_without(part, dropped) for part in content if not _is_thought(part, dropped)]
        sent["content"] = parts or None
    if "tool_calls" in sent:
        sent["tool_calls"] = [_without(call, dropped) for call in sent["tool_calls"]]
    return sent


def _is_thought(part: Members, dropped: frozenset[str]) -> bool:
    return part["type"] == "thinking" and bool(dropped & _THOUGHTS)


def _without(members: Members, dropped: frozenset[str]) -> Members:
    return {name: value for name, value in members.items() if name not in dropped}
