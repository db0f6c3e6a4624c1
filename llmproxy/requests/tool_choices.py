"""Reads a choice among tools in the form of any of the APIs, as clients mix them up, and writes it in one.

A form that can mean one thing only means that; any other stays as it came, for the schema to refuse.
"""

from typing import Any, NamedTuple

Json = dict[str, Any]

# The words of OpenAI's and Anthropic's APIs: the model decides, calls none, or has to call one.
_MODES = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
_ANTHROPICS = {"auto": "auto", "none": "none", "required": "any"}
_SINGLE = "disable_parallel_tool_use"
_KINDS = {None: "function", "tool": "function", "function": "function", "custom": "custom"}


class _Choice(NamedTuple):
    """A mode, or the kind and name of a tool; ``is_single``: at most one call, in Anthropic's words."""

    mode: str | None = None
    kind: str = "function"
    name: str | None = None
    is_single: bool = False


def for_chat(data: Json) -> None:
    """Writes the choice of a call as chat completions have it."""
    if choice := _read(data.get("tool_choice")):
        named = {"type": choice.kind, choice.kind: {"name": choice.name}}
        _write(data, choice, choice.mode or named)


def for_responses(data: Json) -> None:
    """Writes the choice of a call as responses have it."""
    if choice := _read(data.get("tool_choice")):
        _write(data, choice, choice.mode or {"type": choice.kind, "name": choice.name})


def for_messages(data: Json) -> None:
    """Writes the choice of a call as messages have it."""
    choice = _read(data.get("tool_choice"))
    if choice is None or choice.kind != "function":
        return
    written = (
        {"type": _ANTHROPICS[choice.mode]} if choice.mode else {"type": "tool", "name": choice.name}
    )
    given = data["tool_choice"]
    single = {_SINGLE: given[_SINGLE]} if isinstance(given, dict) and _SINGLE in given else {}
    data["tool_choice"] = {**written, **single}


def _write(data: Json, choice: _Choice, written: Any) -> None:
    data["tool_choice"] = written
    if choice.is_single and data.get("parallel_tool_calls") is None:
        data["parallel_tool_calls"] = False


def _read(given: Any) -> _Choice | None:
    """Returns the meaning of a choice; None where it is ambiguous."""
    if isinstance(given, str):
        return _Choice(_MODES[given]) if given in _MODES else None
    if not isinstance(given, dict):
        return None
    members = {name: value for name, value in given.items() if value is not None}
    single, kind = members.pop(_SINGLE, False), members.pop("type", None)
    if not isinstance(single, bool) or not isinstance(kind, str | None):
        return None
    if kind in _MODES and not members:
        return _Choice(_MODES[kind], is_single=single)
    return _named(members, kind, is_single=single)


def _named(members: Json, kind: str | None, *, is_single: bool) -> _Choice | None:
    """The choice of a tool, whose name stands beside its type or within the member of that name."""
    if kind not in _KINDS or len(members) != 1:
        return None
    kind, [(where, name)] = _KINDS[kind], members.items()
    if where == kind and isinstance(name, dict) and name.keys() == {"name"}:
        where, name = "name", name["name"]
    is_name = where == "name" and isinstance(name, str)
    return _Choice(kind=kind, name=name, is_single=is_single) if is_name else None
