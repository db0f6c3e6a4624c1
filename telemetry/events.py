"""Validation of one reported event, and the form in which it is stored."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from json import JSONEncoder
from math import isfinite, isnan
from typing import Any, NamedTuple

import orjson

from config.platform.observability.scrubbing import is_suspect
from config.platform.problems.problem import Fault, pointer
from telemetry.scrubbing import scrubbed

# Patterns of whole values; the published schema names them too.
ID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
NAME = r"[A-Za-z0-9$][A-Za-z0-9 _.:/$-]{0,99}"
APP = r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}"
VERSION = r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}"
_INSTANT = r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)"

OLDEST = timedelta(days=30)
# Clocks of desktops go wrong; a wrong daylight saving shifts one by an hour.
NEWEST = timedelta(hours=1)
# A leap second, which neither the column nor every reader of an export has.
_SECOND_60 = re.compile(r":60(?=[.Z+-])")
_LEAP = "A second 60 is not kept, even a true leap second: write 59."
# The length of an instant with microseconds and its offset.
_PLAIN = 32
PROPERTIES_BYTES = 16 * 1024
PROPERTIES_LEVELS = 5
# PostgreSQL stores neither NUL nor an unpaired surrogate.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")

_json = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
Container = dict[str, Any] | list[Any]


class ReportedEvent(NamedTuple):
    """An event to store. No value has a line break.

    ``id`` is in lower case, ``occurred_at`` an instant in UTC as RFC 3339, ``properties`` JSON without secrets.
    """

    id: str
    name: str
    occurred_at: str
    app: str
    shell_version: str
    properties: str


class BadEvent(Exception):
    """The first fault of an event; its pointer starts at the event."""

    def __init__(self, pointer: str, code: str, detail: str) -> None:
        self.fault = Fault(pointer, code, detail)
        super().__init__(code)


def read(given: Any, *, now: datetime) -> ReportedEvent:
    """Validates an event received at ``now`` or raises ``BadEvent``. Ignores unknown members."""
    if not isinstance(given, dict):
        raise BadEvent("", "invalid", "An event must be an object.")
    return ReportedEvent(
        id=_required(given, "id", _ID, "a UUID with its hyphens").lower(),
        name=_required(given, "name", _NAME, "1 to 100 letters, digits, spaces or any of _.:/$-"),
        app=_text(given, "app", _APP, "the slug of a micro app"),
        shell_version=_text(given, "shell_version", _VERSION, "a version"),
        occurred_at=_instant(given, now),
        properties=_properties(given.get("properties")),
    )


_ID, _NAME, _APP, _VERSION, _AT = (
    re.compile(each, re.ASCII) for each in (ID, NAME, APP, VERSION, _INSTANT)
)


def _text(given: dict[str, Any], member: str, pattern: re.Pattern[str], expected: str) -> str:
    value = given.get(member)
    if value is None:
        return ""
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise BadEvent(f"/{member}", "invalid", f"This must be {expected}.")
    return value


def _required(given: dict[str, Any], member: str, pattern: re.Pattern[str], expected: str) -> str:
    if given.get(member) is None:
        raise BadEvent(f"/{member}", "required", "This member is required.")
    return _text(given, member, pattern, expected)


def _instant(given: dict[str, Any], now: datetime) -> str:
    expected = "an instant as in RFC 3339, with its offset"
    written = _required(given, "occurred_at", _AT, expected).upper()
    try:
        at = datetime.fromisoformat(written)
    except ValueError:
        detail = _LEAP if _SECOND_60.search(written) else "This instant does not exist."
        raise BadEvent("/occurred_at", "invalid", detail) from None
    if at < now - OLDEST:
        raise BadEvent("/occurred_at", "too_old", f"This is more than {OLDEST.days} days ago.")
    if at > now + NEWEST:
        raise BadEvent("/occurred_at", "too_new", "This is more than an hour ahead.")
    # PostgreSQL reads no offset of more than 16 hours and no fraction of any length.
    is_plain = len(written) <= _PLAIN and written.endswith(("Z", "+00:00"))
    return written if is_plain else at.astimezone(UTC).isoformat()


def _properties(given: Any) -> str:
    if given is None:
        return "{}"
    if not isinstance(given, dict):
        raise BadEvent("/properties", "invalid", "Properties must be an object.")
    text = _compact(given)
    if len(text.encode("utf-8", "surrogatepass")) > PROPERTIES_BYTES:
        limit = f"Properties can have at most {PROPERTIES_BYTES:,} bytes."
        raise BadEvent("/properties", "too_large", limit)
    if _may_have_faults(text):
        for place, level, value in _values(given, "/properties", 1):
            _check(place, level, value)
    return _compact(scrubbed(given)) if is_suspect(text) else text


def _compact(value: dict[str, Any]) -> str:
    """Writes compact JSON, also of unpaired surrogates, infinity and integers of any size."""
    try:
        text = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return _json(value)
    # orjson writes infinity as null.
    return _json(value) if "null" in text else text


def _may_have_faults(text: str) -> bool:
    """Spares most events the check of each value."""
    return (
        not text.isascii()
        or "\\u0000" in text
        or "Infinity" in text
        or "NaN" in text
        or text.count("{") + text.count("[") > PROPERTIES_LEVELS
    )


def _values(container: Container, at: str, level: int) -> Iterator[tuple[str, int, Any]]:
    """Yields the pointer, the level of the container, and the value of each value; outer values first."""
    within = container.items() if isinstance(container, dict) else enumerate(container)
    for key, value in within:
        if isinstance(key, str):
            _check(at, level, key)
        place = at + pointer((key,))
        yield place, level, value
        if isinstance(value, dict | list):
            yield from _values(value, place, level + 1)


def _check(at: str, level: int, value: Any) -> None:
    if isinstance(value, dict | list) and level >= PROPERTIES_LEVELS:
        raise BadEvent(at, "too_deep", f"Properties can have at most {PROPERTIES_LEVELS} levels.")
    if isinstance(value, str) and _UNSTORABLE.search(value):
        detail = "This contains a NUL character or an unpaired surrogate."
        raise BadEvent(at, "invalid_characters", detail)
    if isinstance(value, float) and not isfinite(value):
        # The parser reads 1e400 as infinity.
        detail = "JSON has no NaN." if isnan(value) else "This number is too large."
        raise BadEvent(at, "out_of_range", detail)
