"""Detects overlapping edits: a form writes only the values it changed, if they still are those it showed."""

from collections.abc import Mapping
from typing import Any

from config.platform.problems.problem import Fault, InvalidRequest


class ChangedMeanwhile(InvalidRequest):
    """Another edit has changed a field since the form was shown; ``present`` has the current values by field."""

    def __init__(self, present: Mapping[str, Any]) -> None:
        super().__init__(
            errors=[
                Fault(f"/{name}", "changed", _described(value)) for name, value in present.items()
            ]
        )
        self.present = present


def change(
    *, present: Mapping[str, Any], shown: Mapping[str, Any] | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the current values, updated by the given ones that differ from those shown.

    A value that was not shown counts as shown. Raises ``ChangedMeanwhile`` where the current value of a changed field
    is neither the one shown nor the one given.
    """
    seen = {**present, **(shown or {})}
    changed = {name: value for name, value in given.items() if value != seen[name]}
    lost = {
        name: present[name]
        for name, value in changed.items()
        if present[name] not in (seen[name], value)
    }
    if lost:
        raise ChangedMeanwhile(lost)
    return {**present, **changed}


def _described(value: Any) -> str:
    words = ", ".join(value) if isinstance(value, list) else value
    now = "empty" if words in {None, ""} else words
    return f"Somebody has changed this since; it is now {now}. Submit again to replace it."
