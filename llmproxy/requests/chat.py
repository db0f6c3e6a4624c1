"""Validates the body of a model call and keeps the members for the provider."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from config.platform.problems.problem import Fault
from llmproxy.requests import tool_choices
from llmproxy.requests.call_request import CallRequest, Surface
from llmproxy.requests.checking import RequestSchema, read_schemas
from llmproxy.requests.labels import labels_of

# Accepted but not forwarded: the proxy sets the first, and a provider has no use for the second.
_OWN_MEMBERS = frozenset(
    {"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n"}
)
_DROPPED = frozenset({
    "user", "metadata", "store", "modalities", "audio", "web_search_options", "search_parameters", "enable_search",
    "plugins", "functions", "function_call",
})  # fmt: skip
# Members that providers refuse without tools, and their values that need no tool.
_LISTS = frozenset({"tools", "stop"})
_TOOL_MEMBERS = frozenset({"tool_choice", "parallel_tool_calls"})
_WITHOUT_TOOL = ("none", "auto", True, False)
_DROPPED_FROM_MESSAGES = frozenset({
    "audio", "function_call", "executed_tools", "citations", "images", "phase", "token_id", "annotations", "parsed",
    "id", "provider_specific_fields",
})  # fmt: skip
# LiteLLM puts unknown members of an answer here, among them some that providers need back.
_OTHERS = "provider_specific_fields"
_THOUGHTS: Mapping[str, type] = {
    "reasoning_details": list,
    "thinking_blocks": list,
    "extra_content": dict,
}
# Members that an SDK or a server adds to a call of a tool, which no provider reads.
_DROPPED_FROM_CALLS = frozenset({"index", "provider_specific_fields"})
_DROPPED_FROM_FUNCTIONS = frozenset({"parsed_arguments", "description", "provider_specific_fields"})

# The parts that may be given by an address, which the schema holds to https, and the member where it is.
_FETCHED = {"image_url": "url", "input_audio": "data"}
# Members of an assistant's message that providers answer with null and take back so.
_NULL_MESSAGES = frozenset({"content", "refusal"})

_SCHEMA = RequestSchema.read("chat", "ChatRequest")
_COMPONENTS = read_schemas("chat")["components"]
# The members of a message, and of the choice that holds it, which are none of its parts.
_OF_MESSAGES = {*_COMPONENTS["Message"]["properties"], "finish_reason", "index", "logprobs"} - {
    *_COMPONENTS["ContentPart"]["properties"]
}
# Those of them that would be lost where the message itself has none.
_CARRYING = frozenset(
    {"content", "tool_calls", "function_call", "reasoning", "reasoning_content", *_THOUGHTS}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat(CallRequest):
    """A chat completion, whose ``members`` are forwarded unchanged."""

    schema: ClassVar = _SCHEMA
    surface: Surface = Surface.CHAT
    include_usage: bool

    @property
    def prompt(self) -> dict[str, Any]:
        return {**self.members, "unlisted": self.unlisted_members} if self.unknown else self.members

    def unlisted(self, members: dict[str, Any]) -> dict[str, Any]:
        """Returns the members beside ``messages`` that are in no list."""
        return {name: value for name, value in members.items() if name not in _SCHEMA.known}

    def fetched_images(self) -> Iterator[tuple[str, str]]:
        for index, message in enumerate(self.members["messages"]):
            content = message.get("content")
            for place, part in enumerate(content if isinstance(content, list) else ()):
                kind = part["type"]
                if (name := _FETCHED.get(kind)) and part[kind][name].startswith("https://"):
                    yield f"/messages/{index}/content/{place}/{kind}/{name}", part[kind][name]


def parse(data: dict[str, Any], *, stream: bool | None) -> Chat:
    """Returns the call. The address fixes ``stream``; None where the body decides.

    Raises ``InvalidRequest`` with a pointer for each fault, and ``MalformedRequest`` for too many values or members.
    """
    _drop_repeated(data)
    tool_choices.for_chat(data)
    unknown = _SCHEMA.check(data, besides=_stream_faults(data, stream=stream))
    streamed = bool(data.get("stream")) if stream is None else stream
    members = {
        name: value
        for name, value in data.items()
        if value is not None
        and name not in _OWN_MEMBERS
        and name not in _DROPPED
        # SDKs send an empty list for a caller without tools; providers refuse it.
        and not (name in _LISTS and value == [])
        and not (name in _TOOL_MEMBERS and not data.get("tools") and value in _WITHOUT_TOOL)
    }
    members["messages"] = [_message(each) for each in members["messages"]]
    if "tools" in members:
        members["tools"] = [_part(tool) for tool in members["tools"]]
    if "response_format" in members:
        members["response_format"] = _part(members["response_format"])
    return Chat(
        model=data.get("model"),
        members=members,
        output_wanted=_output_wanted(data),
        stream=streamed,
        unknown=unknown,
        labels=labels_of(data),
        include_usage=bool((data.get("stream_options") or {}).get("include_usage")),
    )


def _drop_repeated(data: dict[str, Any]) -> None:
    """Takes from the texts of a model what SDKs repeat there of its message or choice, which say it themselves."""
    messages = data.get("messages")
    for message in messages if isinstance(messages, list) else ():
        is_said = isinstance(message, dict) and message.get("role") == "assistant"
        content = message.get("content") if is_said else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") in ("text", "refusal"):
                for name in _OF_MESSAGES & part.keys():
                    if name in message or name not in _CARRYING or not part[name]:
                        del part[name]


def _output_wanted(data: dict[str, Any]) -> int | None:
    limits = [data.get("max_tokens"), data.get("max_completion_tokens")]
    # -1 says that the caller has no limit of its own.
    return min((int(each) for each in limits if each is not None and each > 0), default=None)


def _given(members: dict[str, Any]) -> dict[str, Any]:
    """The members that are not empty: a provider may take no null where a caller leaves something out."""
    return {name: value for name, value in members.items() if value not in (None, "")}


def _message(message: dict[str, Any]) -> dict[str, Any]:
    kept = {
        name: value
        for name, value in message.items()
        if name not in _DROPPED_FROM_MESSAGES and (value is not None or name in _NULL_MESSAGES)
    }
    for name, kind in _THOUGHTS.items() if message["role"] == "assistant" else ():
        thought = (message.get(_OTHERS) or {}).get(name)
        if name not in kept and thought and isinstance(thought, kind):
            kept[name] = thought
    if isinstance(kept.get("content"), list):
        kept["content"] = [_part(each) for each in kept["content"]]
    if kept.get("tool_calls"):
        kept["tool_calls"] = [_tool_call(call) for call in kept["tool_calls"]]
    else:
        # Some servers answer with an empty list, which others refuse.
        kept.pop("tool_calls", None)
    if kept.get("content") == []:
        kept["content"] = "" if message["role"] == "tool" else None
    return kept


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """A part, tool or format without what is empty."""
    return {
        name: _given(value) if isinstance(value, dict) else value
        for name, value in part.items()
        if value is not None
    }


def _tool_call(call: dict[str, Any]) -> dict[str, Any]:
    """A tool call as the provider wrote it, without an SDK's additions."""
    kept = {"type": "function", **_without(call, _DROPPED_FROM_CALLS)}
    if kept["type"] == "function":
        function = _without(kept["function"], _DROPPED_FROM_FUNCTIONS)
        kept["function"] = {**function, "arguments": function.get("arguments", "")}
    return kept


def _without(members: dict[str, Any], dropped: frozenset[str]) -> dict[str, Any]:
    return {
        name: value
        for name, value in members.items()
        if name not in dropped and value not in (None, {})
    }


def _stream_faults(data: dict[str, Any], *, stream: bool | None) -> Iterator[Fault]:
    if stream is not None and data.get("stream") not in (None, stream):
        yield Fault("/stream", "invalid", "This address does not support this value.")
