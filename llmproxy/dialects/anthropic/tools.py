"""Translates tools and the choice among them."""

from collections.abc import Iterator
from typing import Any

from llmproxy.dialects.anthropic.blocks import NAME, NAMES, cached, unsupported
from llmproxy.dialects.root_unions import NOT_AN_OBJECT, NoObject, folded

_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


def tools_and_choice(members: dict[str, Any]) -> dict[str, Any]:
    """The members ``tools`` and ``tool_choice`` of the request, where it needs them. Raises ``InvalidRequest``."""
    choice = members.get("tool_choice", "auto")
    tools = [_tool(each, index) for index, each in enumerate(members.get("tools", ()))]
    if isinstance(choice, dict) and choice["type"] == "allowed_tools":
        allowed = choice["allowed_tools"]
        offered = {_name_of(each) for each in allowed["tools"]}
        tools, choice = [each for each in tools if each["name"] in offered], allowed["mode"]
    if tools:
        single = members.get("parallel_tool_calls") is False
        return {"tools": tools, "tool_choice": _choice(choice, single=single)}
    if choice not in ("auto", "none"):
        raise unsupported("/tool_choice", "This call has no tools to choose from.")
    # The API refuses turns that call tools without the tools, even where the model may not call them again.
    names = dict.fromkeys(_called_names(members["messages"]))
    past = [{"name": name, "input_schema": {"type": "object"}} for name in names]
    return {"tools": past, "tool_choice": {"type": "none"}} if past else {}


def _name_of(allowed: dict[str, Any]) -> Any:
    function = allowed.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def _tool(given: dict[str, Any], index: int) -> dict[str, Any]:
    if given["type"] != "function":
        raise unsupported(f"/tools/{index}/type", "This model accepts only functions.")
    function = given["function"]
    if not NAME.fullmatch(function["name"]):
        raise unsupported(f"/tools/{index}/function/name", NAMES)
    try:
        schema = {"type": "object", **folded(function.get("parameters", {}))}
    except NoObject:
        raise unsupported(f"/tools/{index}/function/parameters", NOT_AN_OBJECT) from None
    if schema["type"] != "object":
        raise unsupported(
            f"/tools/{index}/function/parameters/type", "The parameters must be an object."
        )
    tool: dict[str, Any] = {"name": function["name"], "input_schema": schema}
    if function.get("description"):
        tool["description"] = function["description"]
    if function.get("strict"):
        tool["strict"] = True
    return tool | cached(given)


def _choice(choice: Any, *, single: bool) -> dict[str, Any]:
    if isinstance(choice, str):
        translated: dict[str, Any] = {"type": _CHOICES[choice]}
    else:
        if choice["type"] != "function":
            raise unsupported("/tool_choice/type", "This model accepts only functions.")
        translated = {"type": "tool", "name": choice["function"]["name"]}
    if single and translated["type"] != "none":
        translated["disable_parallel_tool_use"] = True
    return translated


def _called_names(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        for call in message.get("tool_calls") or ():
            yield call["function"]["name"]
