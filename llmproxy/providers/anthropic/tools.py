"""Tools and the choice among them."""

from collections.abc import Iterator
from typing import Any

from llmproxy.providers.anthropic.turns import unsupported

_KINDS = {"auto": "auto", "required": "any", "none": "none"}


def tools_and_choice(members: dict[str, Any]) -> dict[str, Any]:
    """``tools`` and ``tool_choice``, as far as there are any. Raises ``InvalidRequest``."""
    choice = members.get("tool_choice", "auto")
    tools = [_tool(each["function"], index) for index, each in enumerate(members.get("tools", ()))]
    if tools:
        single = members.get("parallel_tool_calls") is False
        return {"tools": tools, "tool_choice": _choice(choice, single=single)}
    if choice not in ("auto", "none"):
        raise unsupported("/tool_choice", "There are no tools to choose from.")
    # Turns that call tools are only taken together with the tools, although they shall not be called again.
    known = dict.fromkeys(_called(members["messages"]))
    if not known:
        return {}
    past = [{"name": name, "input_schema": {"type": "object"}} for name in known]
    return {"tools": past, "tool_choice": {"type": "none"}}


def _tool(function: dict[str, Any], index: int) -> dict[str, Any]:
    schema = {"type": "object", **function.get("parameters", {})}
    if schema["type"] != "object":
        raise unsupported(
            f"/tools/{index}/function/parameters/type", "Parameters have to be an object."
        )
    tool: dict[str, Any] = {"name": function["name"], "input_schema": schema}
    if function.get("description"):
        tool["description"] = function["description"]
    if function.get("strict"):
        tool["strict"] = True
    return tool


def _choice(choice: Any, *, single: bool) -> dict[str, Any]:
    if isinstance(choice, str):
        chosen: dict[str, Any] = {"type": _KINDS[choice]}
    else:
        chosen = {"type": "tool", "name": choice["function"]["name"]}
    if single and chosen["type"] != "none":
        chosen["disable_parallel_tool_use"] = True
    return chosen


def _called(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        for call in message.get("tool_calls") or ():
            yield call["function"]["name"]
