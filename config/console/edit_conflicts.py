"""Changing what others may change as well: only what was changed in a form counts, against what it showed."""

from collections.abc import Mapping
from typing import Any

from config.api.problems import Fault, InvalidRequest


class ChangedMeanwhile(InvalidRequest):
    """Somebody else has changed the same since it was shown; ``present`` says what it is now, by field."""

    def __init__(self, present: Mapping[str, Any]) -> None:
        super().__init__(
            errors=[Fault(f"/{name}", "changed", _told(value)) for name, value in present.items()]
        )
        self.present = present


def change(
    *, present: Mapping[str, Any], shown: Mapping[str, Any] | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """What is present with those values that were given otherwise than they were shown.

    What was not shown counts as shown as it is. Raises ``ChangedMeanwhile`` where a value was changed and is by
    now neither what was shown nor what is wanted.
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


def _told(value: Any) -> str:
    words = ", ".join(value) if isinstance(value, list) else value
    now = "empty" if words in {None, ""} else words
    return f"Somebody has changed this; it is {now} now. Send it again to have yours all the same."
