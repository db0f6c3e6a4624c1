"""Removes what looks like a secret from an event's properties, in names of members too.

A member with a secret's name, such as ``password`` or ``Authorization``, loses its whole value, except true, false and
null.
"""

from functools import lru_cache
from typing import Any

from config.platform.observability import scrubbing

MARKED_SECRET = "[secret]"  # nosec B105 # noqa: S105 - a mark, not one


def scrubbed(value: Any) -> Any:
    """Returns a copy of a JSON value without text that looks like a secret."""
    if isinstance(value, str):
        return scrubbing.scrubbed(value)
    if isinstance(value, list):
        return [scrubbed(each) for each in value]
    if isinstance(value, dict):
        return _members(value)
    return value


def _members(given: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    numbers: dict[str, int] = {}
    for name, value in given.items():
        said, is_secret = _name(name)
        hidden = is_secret and not (value is None or isinstance(value, bool))
        kept[_free(said, kept, numbers)] = MARKED_SECRET if hidden else scrubbed(value)
    return kept


def _free(name: str, taken: dict[str, Any], numbers: dict[str, int]) -> str:
    """A free name, because scrubbed names may be equal. ``numbers``: the last one tried of each name."""
    free = name
    while free in taken:
        numbers[name] = numbers.get(name, 1) + 1
        free = f"{name} {numbers[name]}"
    return free


@lru_cache(maxsize=4096)
def _name(name: str) -> tuple[str, bool]:
    """The scrubbed name, and whether its value is secret. Names are few and repeat."""
    return scrubbing.scrubbed(name), scrubbing.SECRET_NAME.search(name) is not None
