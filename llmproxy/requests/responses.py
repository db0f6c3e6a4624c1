"""OpenAI's Responses API without state: checks a request, and keeps the members for the provider."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from json import dumps
from typing import Any, ClassVar

from config.platform.problems.problem import MAX_FAULTS, Fault, InvalidRequest, pointer
from llmproxy.requests import tool_choices
from llmproxy.requests.call_request import CallRequest, Surface
from llmproxy.requests.checking import RequestSchema
from llmproxy.requests.labels import labels_of
from llmproxy.requests.refused_members import Place

Json = dict[str, Any]

STATELESS = "This service keeps no state: send the whole conversation as input, with store: false."
# A member that wants state: why it is refused.
_STATEFUL = {
    "store": "Nothing is stored here: set store: false.",
    "previous_response_id": STATELESS,
    "conversation": STATELESS,
    "prompt": "Prompts stored at a provider are not supported: send the instructions themselves.",
    "background": "This service keeps no state, so an answer is streamed or awaited; background is not supported.",
    "background_options": "This service keeps no state, so nothing runs in the background.",
}
REFERENCE = (
    "This service keeps no state, so an item_reference leads to nothing: with store: false your SDK sends the items "
    "themselves."
)
_TAKEN = "function, custom, local_shell, apply_patch, a local shell and tool_search with execution: client"
HOSTED = (
    f"This runs at the provider, and hosted tools cost more than tokens. The caller runs {_TAKEN}."
)
COMPUTER = f"A computer is not supported here. The caller runs {_TAKEN}."
# Tools that the provider runs, or fetches with the caller's credentials.
_HOSTED = frozenset({
    "web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation", "mcp",
    "programmatic_tool_calling",
})  # fmt: skip
_COMPUTERS = frozenset({"computer", "computer_use", "computer_use_preview"})
# Accepted but not forwarded: the proxy sets the first, and a provider has no use for the second.
_OWN_MEMBERS = frozenset(
    {"model", "stream", "max_output_tokens", "store", "background", "previous_response_id"}
)
_DROPPED = frozenset({
    "user", "metadata", "client_metadata", "conversation", "prompt", "background_options",
})  # fmt: skip
# Members that providers refuse without tools.
_TOOL_MEMBERS = frozenset({"tool_choice", "parallel_tool_calls", "max_tool_calls"})
# Items that are tools and no message.
_TOOLS_ALONE = frozenset({"additional_tools", "tool_search_output"})
# Members that an SDK adds to what it gives back.
_DROPPED_FROM_ITEMS = frozenset({"parsed", "parsed_arguments"})
# Characters of encrypted reasoning for a token: its bytes in base64.
_ENCRYPTED_PER_TOKEN = 5
# Tokens of a tool that OpenAI defines, whose text is not known: as much as Anthropic says of its own.
_DEFINED_TOOL = 700

_SCHEMA = RequestSchema.read("responses", "ResponsesRequest")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesRequest(CallRequest):
    """A request for a response, whose ``members`` are forwarded unchanged."""

    schema: ClassVar = _SCHEMA
    surface: Surface = Surface.RESPONSES

    @property
    def prompt(self) -> Json:
        members = self.members
        items = _items(members["input"])
        messages = [_message(each) for each in items if each.get("type") not in _TOOLS_ALONE]
        if members.get("instructions"):
            messages.insert(0, {"role": "system", "content": members["instructions"]})
        return {
            "messages": messages,
            "tools": [_tool(each) for _, each in _tools_in(members)],
            "response_format": (members.get("text") or {}).get("format"),
            "tool_choice": members.get("tool_choice"),
            "unlisted": self.unlisted_members,
        }

    @property
    def unseen_tokens(self) -> int:
        """The tokens of encrypted reasoning that is given back, by its length, and of tools that OpenAI defines."""
        items = _items(self.members["input"])
        sizes = (len(each.get("encrypted_content") or "") for each in items)
        defined = sum(_is_defined_by_openai(each) for _, each in _tools_in(self.members))
        return sum(sizes) // _ENCRYPTED_PER_TOKEN + defined * _DEFINED_TOOL

    def fetched_images(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.members["input"], str):
            return
        for index, item in enumerate(self.members["input"]):
            for name in ("content", "output"):
                parts = item.get(name)
                for place, part in enumerate(parts if isinstance(parts, list) else ()):
                    is_image = isinstance(part, dict) and part.get("type") == "input_image"
                    url = part.get("image_url") if is_image else None
                    if url and not url.startswith("data:"):
                        yield f"/input/{index}/{name}/{place}/image_url", url


def parse(data: Json) -> ResponsesRequest:
    """Returns the call.

    Raises ``InvalidRequest`` with a pointer for each fault, and ``MalformedRequest`` for too many values or members.
    """
    if faults := list(islice(_refused(data), MAX_FAULTS)):
        raise InvalidRequest(errors=faults)
    tool_choices.for_responses(data)
    unknown = _SCHEMA.check(data)
    without = frozenset[str]() if data.get("tools") else frozenset({"tools"})
    if not any(_tools_in(data)):
        without |= _TOOL_MEMBERS
    members = {
        name: _given(value)
        for name, value in data.items()
        if value is not None and name not in _OWN_MEMBERS | _DROPPED | without
    }
    if not isinstance(members["input"], str):
        members["input"] = [_item(each) for each in members["input"] if not _is_empty(each)]
    if "tools" in members:
        members["tools"] = [_given_tool(each) for each in members["tools"]]
    return ResponsesRequest(
        model=data.get("model"),
        members=members,
        output_wanted=data.get("max_output_tokens"),
        stream=bool(data.get("stream")),
        unknown=unknown,
        labels=labels_of(data),
    )


def _refused(data: Json) -> Iterator[Fault]:
    """The faults of what is known and refused, each with its reason."""
    for name, why in _STATEFUL.items():
        if data.get(name) not in (None, False, "", {}):
            yield Fault(f"/{name}", "stateless", why)
    items = data.get("input")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict) and (item.get("type") == "item_reference" or _is_bare(item)):
            yield Fault(f"/input/{index}", "stateless", REFERENCE)
    for place, tool in _tools_in(data):
        kind = str(tool.get("type"))
        if _is_hosted(kind, tool):
            yield Fault(pointer((*place, "type")), "hosted_tool", HOSTED)
        elif kind in _COMPUTERS:
            yield Fault(pointer((*place, "type")), "unsupported", COMPUTER)


def _tools_in(data: Json) -> Iterator[tuple[Place, Json]]:
    """Yields each tool of a call with its place: its own, those of its items, and those within a namespace."""
    for place, tools in _lists_of_tools(data):
        for at, tool in _listed(tools, place):
            yield at, tool
            if tool.get("type") == "namespace":
                yield from _listed(tool.get("tools"), (*at, "tools"))


def _lists_of_tools(data: Json) -> Iterator[tuple[Place, Any]]:
    yield ("tools",), data.get("tools")
    items = data.get("input")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict) and str(item.get("type")) in _TOOLS_ALONE:
            yield ("input", index, "tools"), item.get("tools")


def _listed(tools: Any, place: Place) -> Iterator[tuple[Place, Json]]:
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict):
            yield (*place, index), tool


def _is_hosted(kind: str, tool: Json) -> bool:
    if kind == "tool_search":
        return tool.get("execution") != "client"
    # A date may stand behind the name.
    return kind in _HOSTED or kind.startswith("web_search")


def _is_defined_by_openai(tool: Json) -> bool:
    return "name" not in tool and not tool.get("description")


def _is_bare(item: Json) -> bool:
    """Returns whether an item is a reference whose type was left out."""
    return {name for name, value in item.items() if value is not None} == {"id"}


def _is_empty(item: Json) -> bool:
    """Returns whether an item is reasoning that only a provider with state could read."""
    is_reasoning = item.get("type") == "reasoning"
    return is_reasoning and not item.get("encrypted_content") and not item.get("content")


def _given(value: Any) -> Any:
    """An option without its members of null: a provider may take no null where a caller leaves something out."""
    if not isinstance(value, dict):
        return value
    return {
        # A schema is the caller's own.
        name: each if name == "schema" else _given(each)
        for name, each in value.items()
        if each is not None
    }


def _item(item: Json) -> Json:
    kept = {
        name: value
        for name, value in item.items()
        if value is not None and name not in _DROPPED_FROM_ITEMS
    }
    for name in ("content", "output"):
        if isinstance(parts := kept.get(name), list):
            kept[name] = [_item(part) if isinstance(part, dict) else part for part in parts]
    if "tools" in kept:
        kept["tools"] = [_given_tool(each) for each in kept["tools"]]
    if kept.get("type") == "reasoning":
        kept.setdefault("summary", [])
    return kept


def _given_tool(tool: Json) -> Json:
    """A tool without members of null, but for the one that says so that its schema is taken as far as it goes."""
    kept = {name: each for name, each in tool.items() if each is not None or name == "strict"}
    if isinstance(tools := kept.get("tools"), list):
        kept["tools"] = [_given_tool(each) for each in tools]
    return kept


def _items(given: str | list[Json]) -> list[Json]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _message(item: Json) -> Json:
    """An item as a message of a chat completion, for the count of the prompt."""
    kind = item.get("type", "message")
    if kind.endswith("_call"):
        return _call(item)
    if kind.endswith("_output"):
        output = item.get("output") or ""
        content = dumps(output) if kind == "shell_call_output" else _content(output)
        ids = {"tool_call_id": item.get("call_id"), "name": item.get("name")}
        return {"role": "tool", **ids, "content": content}
    if kind == "configuration_update":
        return {"role": "system", "content": dumps(item.get("text") or "")}
    if kind == "reasoning":
        # Encrypted content includes its summary.
        shown = [] if item.get("encrypted_content") else item.get("content") or ()
        return {"role": "assistant", "content": _content(list(shown))}
    return {"role": item["role"], "content": _content(item["content"])}


def _call(item: Json) -> Json:
    """A call of a tool; one that OpenAI defines has an action or an operation in place of a text."""
    given = item.get("arguments") or item.get("input") or ""
    if not isinstance(given, str):
        given = dumps(given, ensure_ascii=False)
    if action := item.get("action") or item.get("operation"):
        given = dumps(action, ensure_ascii=False)
    called = {"name": item.get("name") or item["type"], "arguments": given}
    return {"role": "assistant", "tool_calls": [{"id": item.get("call_id"), "function": called}]}


def _content(content: str | list[Json]) -> str | list[Json]:
    if isinstance(content, str):
        return content
    return [_part(each) for each in content]


def _part(part: Json) -> Json:
    if "image_url" in part:
        image = {"url": part["image_url"], "detail": part.get("detail", "auto")}
        return {"type": "image_url", "image_url": image}
    if "file_data" in part:
        return {"type": "file", "file": part}
    return {"type": "text", "text": part.get("text") or part.get("refusal") or ""}


def _tool(tool: Json) -> Json:
    """A tool as one of a chat completion; the grammar of its input and the schema of its result are described."""
    form = tool.get("format") or {}
    result = tool.get("output_schema") or tool.get("environment")
    described = [
        tool.get("description") or "",
        form.get("definition") or "",
        dumps(result) if result else "",
    ]
    function = {
        # One that OpenAI defines has its type for a name.
        "name": tool.get("name") or tool["type"],
        "description": "\n".join(filter(None, described)),
        "parameters": tool.get("parameters"),
    }
    return {"type": "function", "function": function}
