"""Validates the body of a model call and keeps the members for the provider."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from config.api.problems import Fault, InvalidRequest
from llmproxy.surfaces.chat_schema import CHAT_REQUEST, COMPONENTS
from llmproxy.surfaces.checking import RequestSchema
from llmproxy.surfaces.model_request import ModelRequest, Surface

# Accepted but not forwarded: the proxy sets the first, and a provider has no use for the second.
_OWN_MEMBERS = frozenset(
    {"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n"}
)
_DROPPED = frozenset({"user", "metadata", "store"})
# Members that providers refuse without tools, and their values that need no tool.
_TOOL_MEMBERS = frozenset({"tool_choice", "parallel_tool_calls"})
_WITHOUT_TOOL = ("none", "auto", True, False)
_DROPPED_FROM_MESSAGES = frozenset(
    {
        "annotations",
        "audio",
        "function_call",
        "parsed",
        "provider_specific_fields",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
    }
)

_SCHEMA = RequestSchema(CHAT_REQUEST, COMPONENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat(ModelRequest):
    """A chat completion, whose ``members`` are forwarded unchanged."""

    surface: Surface = Surface.CHAT
    # The caller's name of the output limit: compatible servers support only one of the two.
    limit_member: str
    include_usage: bool

    def fetched_images(self) -> Iterator[tuple[str, str]]:
        for index, message in enumerate(self.members["messages"]):
            content = message.get("content")
            for place, part in enumerate(content if isinstance(content, list) else ()):
                if part["type"] == "image_url" and not part["image_url"]["url"].startswith("data:"):
                    pointer = f"/messages/{index}/content/{place}/image_url/url"
                    yield pointer, part["image_url"]["url"]


def parse(data: dict[str, Any], *, stream: bool | None) -> Chat:
    """Returns the call. The address fixes ``stream``; None where the body decides.

    Raises ``InvalidRequest`` with a pointer for each fault, and ``MalformedRequest`` for too many values or members.
    """
    unknown = _SCHEMA.check(data, besides=_stream_faults(data, stream=stream))
    if unknown:
        raise InvalidRequest(errors=unknown)
    streamed = bool(data.get("stream")) if stream is None else stream
    members = {
        name: value
        for name, value in data.items()
        if value is not None
        and name not in _OWN_MEMBERS
        and name not in _DROPPED
        # SDKs send an empty list for a caller without tools; providers refuse it.
        and not (name == "tools" and not value)
        and not (name in _TOOL_MEMBERS and not data.get("tools") and value in _WITHOUT_TOOL)
    }
    members["messages"] = [_message(each) for each in members["messages"]]
    return Chat(
        model=data.get("model"),
        members=members,
        output_wanted=_output_wanted(data),
        limit_member=_limit_member(data),
        stream=streamed,
        include_usage=bool((data.get("stream_options") or {}).get("include_usage")),
    )


def _output_wanted(data: dict[str, Any]) -> int | None:
    limits = [data.get("max_tokens"), data.get("max_completion_tokens")]
    return min((each for each in limits if each is not None), default=None)


def _limit_member(data: dict[str, Any]) -> str:
    newer, older = "max_completion_tokens", "max_tokens"
    return older if data.get(newer) is None and data.get(older) is not None else newer


def _message(message: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in message.items() if name not in _DROPPED_FROM_MESSAGES}
    if kept.get("tool_calls"):
        kept["tool_calls"] = [_tool_call(call) for call in kept["tool_calls"]]
    return kept


def _tool_call(call: dict[str, Any]) -> dict[str, Any]:
    """A tool call as the provider wrote it, without an SDK's additions."""
    function = {name: call["function"][name] for name in ("name", "arguments")}
    return {"id": call["id"], "type": call["type"], "function": function}


def _stream_faults(data: dict[str, Any], *, stream: bool | None) -> Iterator[Fault]:
    if stream is not None and data.get("stream") not in (None, stream):
        yield Fault("/stream", "invalid", "This address does not support this value.")
