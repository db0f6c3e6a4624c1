"""Checks of single members of a request, with OpenAI's wording and codes.

Each takes the member's path (`tools[0].type`) and its value, and raises `ApiError` 400. Null counts
as absent and does not come here.
"""

import re
from collections.abc import Callable
from typing import Any

from tests.standins.provider.failures import ApiError

Check = Callable[[str, Any], None]
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a decimal"),
    (str, "a string"),
    (list, "an array"),
    (dict, "an object"),
)


def kind_of(value: object) -> str:
    """What JSON calls a value, with its article."""
    return next((name for kind, name in KINDS if isinstance(value, kind)), "null")


def wrong_type(path: str, value: object, expected: str) -> ApiError:
    """The refusal of a value of another type."""
    return ApiError(
        400,
        f"Invalid type for '{path}': expected {expected}, but got {kind_of(value)} instead.",
        param=path,
        code="invalid_type",
    )


def missing(path: str) -> ApiError:
    """The refusal of a request without a member that must be there."""
    return ApiError(
        400,
        f"Missing required parameter: '{path}'.",
        param=path,
        code="missing_required_parameter",
    )


def invalid(path: str, why: str, code: str | None = "invalid_value") -> ApiError:
    """The refusal of a value of the right type."""
    return ApiError(400, why, param=path, code=code)


def a_boolean(path: str, value: object) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise wrong_type(path, value, "a boolean")


def a_string(path: str, value: object) -> None:
    """A text."""
    if not isinstance(value, str):
        raise wrong_type(path, value, "a string")


def an_object(path: str, value: object) -> None:
    """A JSON object."""
    if not isinstance(value, dict):
        raise wrong_type(path, value, "an object")


def an_array(path: str, value: object) -> None:
    """A JSON array."""
    if not isinstance(value, list):
        raise wrong_type(path, value, "an array")


def a_name(path: str, value: object) -> None:
    """A name of a tool or a schema: one to 64 letters, digits, `_` and `-`."""
    a_string(path, value)
    if not NAME.match(str(value)):
        raise invalid(
            path,
            f"Invalid '{path}': string does not match pattern. "
            "Expected a string that matches the pattern '^[a-zA-Z0-9_-]{1,64}$'.",
        )


def integer(least: int, most: int | None = None) -> Check:
    """An integer from `least` to `most`."""

    def check(path: str, value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_type(path, value, "an integer")
        _in_range(path, value, least, most, "integer")

    return check


def decimal(least: float, most: float) -> Check:
    """A number from `least` to `most`."""

    def check(path: str, value: object) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise wrong_type(path, value, "a decimal")
        _in_range(path, value, least, most, "decimal")

    return check


def _in_range(path: str, value: float, least: float, most: float | None, word: str) -> None:
    if value < least:
        raise invalid(
            path,
            f"Invalid '{path}': {word} below minimum value. "
            f"Expected a value >= {least}, but got {value} instead.",
            f"{word}_below_min_value",
        )
    if most is not None and value > most:
        raise invalid(
            path,
            f"Invalid '{path}': {word} above maximum value. "
            f"Expected a value <= {most}, but got {value} instead.",
            f"{word}_above_max_value",
        )


def one_of(*choices: str) -> Check:
    """One of the given texts."""
    supported = ", ".join(f"'{choice}'" for choice in choices)

    def check(path: str, value: object) -> None:
        a_string(path, value)
        if value not in choices:
            raise invalid(path, f"Invalid value: '{value}'. Supported values are: {supported}.")

    return check


def anything(path: str, value: object) -> None:
    """A member that is taken and not looked at."""


def required(holder: dict[str, Any], name: str, path: str, check: Check) -> Any:
    """The member `name` of `holder`, present and checked; `path` is its own."""
    if holder.get(name) is None:
        raise missing(path)
    check(path, holder[name])
    return holder[name]


def optional(holder: dict[str, Any], name: str, path: str, check: Check) -> Any:
    """The member `name` of `holder`, checked if it is there and not null."""
    if holder.get(name) is not None:
        check(path, holder[name])
    return holder.get(name)
