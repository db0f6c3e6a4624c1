"""Reads what a choice says, by whichever member its server says it."""

from typing import Any

Choice = dict[str, Any]

# The members of a chunk and of an answer, which some servers exchange, and that of older completions.
_DELTA, _MESSAGE, _TEXT = "delta", "message", "text"


def message_of(choice: Choice) -> dict[str, Any]:
    """The message of a choice of a whole answer. Raises ``KeyError`` without one."""
    if not isinstance(choice.get(_MESSAGE), dict):
        said = _said(choice, _DELTA)
        if said is None:
            raise KeyError(_MESSAGE)
        choice[_MESSAGE] = said
    message: dict[str, Any] = choice[_MESSAGE]
    return message


def delta_of(choice: Choice, *, has_spoken: bool) -> dict[str, Any] | None:
    """Returns the delta of a chunk's choice, wherever it is written; None for nothing.

    After deltas (``has_spoken``) a message repeats them.
    """
    return None if has_spoken else _said(choice, _MESSAGE)


def _said(choice: Choice, member: str) -> dict[str, Any] | None:
    if isinstance(choice.get(member), dict):
        said: dict[str, Any] = choice.pop(member)
        return said
    if isinstance(choice.get(_TEXT), str):
        return {"role": "assistant", "content": choice.pop(_TEXT)}
    return None
