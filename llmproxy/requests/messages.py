"""Reads the body of a call of Anthropic's Messages API, and of a count of its tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from json import dumps
from typing import Any, ClassVar

from config.platform.problems.problem import Fault, InvalidRequest
from llmproxy.requests import tool_choices
from llmproxy.requests.call_request import CallRequest, Surface
from llmproxy.requests.checking import RequestSchema
from llmproxy.requests.labels import labels_of

# The versions whose requests, answers and usage are read here, the one that an absent header means first.
VERSIONS = ("2023-06-01", "2026-10-21")
# Betas that a caller may switch on: none changes a price, or the content of an answer or its usage. Others are left
# out, since programs send long lists of them and mostly do without.
BETAS = frozenset({
    "advanced-tool-use-2025-11-20", "cache-diagnosis-2026-04-07", "claude-code-20250219",
    "context-management-2025-06-27", "dev-full-thinking-2025-05-14", "effort-2025-11-24",
    "fine-grained-tool-streaming-2025-05-14", "inline-tools-2026-09-15", "interleaved-thinking-2025-05-14",
    "mid-conversation-output-config-2026-07-01", "mid-conversation-system-clear-at-2026-08-21",
    "mid-conversation-tool-changes-2026-07-01", "model-context-window-exceeded-2025-08-26", "output-128k-2025-02-19",
    "output-300k-2026-03-24", "pdfs-2024-09-25", "per-turn-control-2026-07-01", "prompt-caching-2024-07-31",
    "structured-outputs-2025-11-13", "task-budgets-2026-03-13", "thinking-binding-controls-2026-08-01",
    "thinking-display-updates-2026-08-18", "thinking-token-count-2026-05-13", "token-counting-2024-11-01",
    "token-efficient-tools-2025-02-19", "tool-search-tool-2025-10-19",
})  # fmt: skip

_MESSAGES = RequestSchema.read("messages", "MessagesRequest")
_COUNT = RequestSchema.read("messages", "MessagesCountRequest")
# The proxy sets the first, and a provider has no use for the second.
_OWN_MEMBERS = frozenset({"model", "max_tokens", "stream"})
_DROPPED = frozenset({"metadata", "speed"})
# Objects of the call whose own members may be null.
_WITHOUT_NULLS = frozenset({"thinking", "output_config"})
# The blocks whose content is blocks.
_HOLDING = frozenset({"tool_result", "search_result"})

Block = dict[str, Any]


class ThreadRefused(InvalidRequest):
    """A turn of a conversation that the provider would keep. Anthropic's SDKs ask again without it by themselves."""

    sdk_details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages(CallRequest):
    """A call of the Messages API, whose ``members`` are forwarded unchanged beside ``headers``."""

    schema: ClassVar = _MESSAGES
    surface: Surface = Surface.MESSAGES
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def prompt(self) -> dict[str, Any]:
        members = self.members
        system = [{"role": "system", "content": _parts(members.get("system", []))}]
        prompt = {
            "unlisted": self.unlisted_members,
            "messages": [*system, *_chat_messages(members["messages"])],
            "tools": [_chat_tool(tool) for tool in self.tools],
            "tool_choice": members.get("tool_choice"),
            "response_format": members.get("output_format")
            or members.get("output_config", {}).get("format"),
        }
        return {name: value for name, value in prompt.items() if value}

    @property
    def tools(self) -> list[Block]:
        """The tools of the call, and those that its messages define."""
        changes = (block["tool"] for _, block in self.blocks() if block["type"] == "tool_addition")
        defined = (each["definition"] for each in changes if "definition" in each)
        return [*self.members.get("tools", ()), *defined]

    def fetched_images(self) -> Iterator[tuple[str, str]]:
        for place, block in self.blocks():
            source = block["source"] if block["type"] in ("image", "document") else {}
            if source.get("type") == "url":
                yield f"{place}/source/url", source["url"]

    def blocks(self) -> Iterator[tuple[str, Block]]:
        """Each block of the messages with its pointer, also those within blocks."""
        for index, message in enumerate(self.members["messages"]):
            yield from _blocks(message.get("content"), f"/messages/{index}/content")

    @property
    def cites(self) -> bool:
        asked = (block.get("citations") for _, block in self.blocks())
        return any(isinstance(each, dict) and each.get("enabled") for each in asked)


def parse(data: dict[str, Any], *, headers: Mapping[str, str]) -> Messages:
    """Returns the call; ``headers`` are those of the request.

    Raises ``InvalidRequest`` with a pointer for each fault, and ``MalformedRequest`` for too many values or members.
    """
    call = _read(data, _MESSAGES, headers)
    labels = labels_of({"user": (data.get("metadata") or {}).get("user_id")})
    return replace(call, labels=labels, output_wanted=data.get("max_tokens"))


def parse_count(data: dict[str, Any], *, headers: Mapping[str, str]) -> Messages:
    """Returns what is to be counted, as :func:`parse` does."""
    return _read(data, _COUNT, headers)


def _read(data: dict[str, Any], schema: RequestSchema, headers: Mapping[str, str]) -> Messages:
    if data.get("thread") is not None:
        whole = "No conversation is kept here. Send all of its messages, without this member."
        raise ThreadRefused(errors=[Fault("/thread", "unknown", whole)])
    tool_choices.for_messages(data)
    unknown = schema.check(data, besides=_header_faults(headers))
    members: dict[str, Any] = {
        name: _given(value) if name in _WITHOUT_NULLS else value
        for name, value in _given(data).items()
        if name not in _OWN_MEMBERS and name not in _DROPPED
    }
    members["messages"] = [_turn(message) for message in members["messages"]]
    if isinstance(members.get("system"), list):
        members["system"] = _content(members["system"])
    if "tools" in members:
        members["tools"] = [_given(tool) for tool in members["tools"]]
    return Messages(
        model=data.get("model"),
        members=members,
        stream=bool(data.get("stream")),
        unknown=unknown,
        headers=_passed(headers),
    )


def _header_faults(headers: Mapping[str, str]) -> Iterator[Fault]:
    if headers.get("anthropic-version", VERSIONS[0]) not in VERSIONS:
        yield Fault(
            "anthropic-version",
            "invalid",
            f"The header anthropic-version is {' or '.join(VERSIONS)}.",
        )


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers for the provider."""
    wanted = [each.strip() for each in headers.get("anthropic-beta", "").split(",")]
    betas = ",".join(each for each in dict.fromkeys(wanted) if each in BETAS)
    version = headers.get("anthropic-version", VERSIONS[0])
    return {"anthropic-version": version, **({"anthropic-beta": betas} if betas else {})}


def _given(members: dict[str, Any]) -> dict[str, Any]:
    """The members that are not null: the API takes few nulls where something is left out."""
    return {name: value for name, value in members.items() if value is not None}


def _turn(message: dict[str, Any]) -> dict[str, Any]:
    given = _given(message)
    if "content" in given:
        given["content"] = _content(given["content"])
    if "output_config" in given:
        given["output_config"] = _given(given["output_config"])
    return given


def _content(content: str | list[Block]) -> str | list[Block]:
    if isinstance(content, str):
        return content
    return [
        {**_given(block), "content": _content(block["content"])}
        if block["type"] in _HOLDING and isinstance(block.get("content"), list)
        else _given(block)
        for block in content
    ]


def _blocks(content: Any, place: str) -> Iterator[tuple[str, Block]]:
    for index, block in enumerate(content if isinstance(content, list) else ()):
        at = f"{place}/{index}"
        yield at, block
        if block["type"] in _HOLDING:
            yield from _blocks(block.get("content"), f"{at}/content")
        elif block["type"] == "document":
            yield from _blocks(block["source"].get("content"), f"{at}/source/content")


def _chat_messages(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The turns as messages of a chat completion: each result of a tool is one of its own."""
    for message in messages:
        content = message.get("content", [])
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        calls = [_tool_call(block) for block in blocks if block["type"] == "tool_use"]
        for block in blocks:
            if block["type"] == "tool_result":
                parts = _parts(block.get("content", ""))
                yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": parts}
        said = {"role": message["role"], "content": _parts(blocks)}
        yield {**said, "tool_calls": calls} if calls else said


def _chat_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool of a chat completion; one that Anthropic defines keeps its members."""
    kept = {name: value for name, value in tool.items() if name != "cache_control"}
    if "input_schema" in kept:
        kept["parameters"] = kept.pop("input_schema")
    return {"type": "function", "function": kept}


def _tool_call(block: Block) -> dict[str, Any]:
    function = {"name": block["name"], "arguments": dumps(block["input"], ensure_ascii=False)}
    return {"id": block["id"], "type": "function", "function": function}


def _parts(content: str | list[Block]) -> list[dict[str, Any]]:
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return [part for block in blocks for part in _parts_of(block)]


def _parts_of(block: Block) -> Iterator[dict[str, Any]]:
    """Returns a block as parts of a chat completion; ``prompt_overhead`` counts what these cannot express."""
    source = block.get("source")
    match block["type"]:
        case "image" if isinstance(source, dict):
            yield {"type": "image_url", "image_url": {"url": _address(source)}}
        case "document" if isinstance(source, dict):
            texts = [block.get("title"), block.get("context")]
            yield from (_text(text) for text in texts if text)
            if source["type"] == "text":
                yield _text(source["data"])
            elif source["type"] == "content":
                yield from _parts(source["content"])
            elif source["type"] == "base64":
                yield {"type": "file", "file": {"file_data": _address(source)}}
        case "search_result":
            yield from (_text(block[name]) for name in ("source", "title"))
            yield from _parts(block["content"])
        case "text":
            yield _text(block["text"])
        case "thinking":
            yield _text(block["thinking"])
        case _ if name := named_tool(block):
            yield _text(name)


def named_tool(block: Block) -> str | None:
    """The name of the tool that a block loads, adds or takes away; None for one that it defines."""
    if block["type"] == "tool_reference":
        return str(block["tool_name"])
    tool = block["tool"] if block["type"] in ("tool_addition", "tool_removal") else {}
    return tool.get("name")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _address(source: dict[str, Any]) -> str:
    address: str = source.get("url") or f"data:{source['media_type']};base64,{source['data']}"
    return address
