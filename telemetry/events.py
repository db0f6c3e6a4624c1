"""One reported event: what it must be, and what of it is kept."""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from json import JSONEncoder
from math import isfinite
from types import NoneType
from typing import Any, NamedTuple

import orjson

from config.api.problems import Fault, pointer
from telemetry.scrubbing import is_suspect, scrubbed

# An event's own, how it is written on the wire; each must match as a whole.
ID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
NAME = r"[A-Za-z0-9$][A-Za-z0-9 _.:/$-]{0,99}"
APP = r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}"
VERSION = r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}"
_USUAL_INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)"
_INSTANT = r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)"

OLDEST = timedelta(days=30)
# Clocks of desktops go wrong; an hour is also what a wrong daylight saving makes of one.
NEWEST = timedelta(hours=1)
# Characters of an instant with microseconds and its offset.
_PLAIN = 32
PROPERTIES_BYTES = 16 * 1024
PROPERTIES_LEVELS = 5

Container = dict[str, Any] | list[Any]
# Name, app and shell version; the last two empty where there is none.
Words = tuple[str, str, str]


class Reported(NamedTuple):
    """An event that can be kept, all of it in one line each.

    ``id`` is in small letters, ``occurred_at`` an instant in UTC as RFC 3339, ``properties`` JSON without what looked
    like a secret.
    """

    id: str
    name: str
    occurred_at: str
    app: str
    shell_version: str
    properties: str


class BadEvent(Exception):
    """An event that cannot be kept: its first fault, with a pointer from the event on."""

    def __init__(self, pointer: str, code: str, detail: str) -> None:
        self.fault = Fault(pointer, code, detail)
        super().__init__(code)


class Reader:
    """Reads the events of one batch, which came at ``now``: ``read`` says what of each is kept, or ``BadEvent``.

    ``read_all`` says the same of an ordinary batch in less than half the time. Members that nobody knows are ignored.
    The same names, apps and versions come again and again in a batch, so each is judged once.
    """

    def __init__(self, *, now: datetime) -> None:
        self._oldest, self._newest = now - OLDEST, now + NEWEST
        self._known: dict[tuple[Any, Any, Any], Words] = {}

    def read(self, given: Any) -> Reported:
        if not isinstance(given, dict):
            raise BadEvent("", "invalid", "An event is an object.")
        event_id = _text(given, "id", _UUID, "a UUID with its hyphens").lower()
        name, app, shell_version = self._words(given)
        at = self._instant(given)
        properties = _properties(given.get("properties"))
        return Reported(event_id, name, at, app, shell_version, properties)

    def read_all(self, given: Sequence[Any]) -> list[Reported] | None:
        """What of a batch is kept; None where an event is bad or unusual, and each has to be read by itself."""
        try:
            ids = _ids([each["id"] for each in given])
            times = self._instants([each["occurred_at"] for each in given])
            words = [self._words(each) for each in given]
            texts = _texts([each.get("properties") for each in given])
        except (AttributeError, KeyError, TypeError, ValueError, BadEvent):
            return None
        return [
            Reported(event_id, name, at, app, shell_version, text)
            for event_id, at, (name, app, shell_version), text in zip(
                ids, times, words, texts, strict=True
            )
        ]

    def _instants(self, times: list[str]) -> list[str]:
        """Those of all events, or ``ValueError``; only the usual way to write them is known here."""
        read = [datetime.fromisoformat(each) for each in times]
        if not all(map(_AT_USUAL, times)) or min(read) < self._oldest or max(read) > self._newest:
            raise ValueError
        return times

    def _words(self, given: dict[str, Any]) -> Words:
        said = (given.get("name"), given.get("app"), given.get("shell_version"))
        try:
            return self._known[said]
        except (KeyError, TypeError):
            # A member that cannot be looked up is a list or an object, and will be refused.
            words = (
                _text(given, "name", _NAME, "1 to 100 letters, digits, spaces or any of _.:/$-"),
                _text(given, "app", _APP, "the slug of a micro app", needed=False),
                _text(given, "shell_version", _VERSION, "a version", needed=False),
            )
        self._known[said] = words
        return words

    def _instant(self, given: dict[str, Any]) -> str:
        text = _text(given, "occurred_at", _AT, "an instant as in RFC 3339, with its offset")
        written = text.upper()
        try:
            at = datetime.fromisoformat(written)
        except ValueError:
            raise BadEvent("/occurred_at", "invalid", "There is no such instant.") from None
        if at < self._oldest:
            raise BadEvent("/occurred_at", "too_old", f"This is more than {OLDEST.days} days ago.")
        if at > self._newest:
            raise BadEvent("/occurred_at", "too_new", "This is more than an hour ahead.")
        # The database reads no offset of more than 16 hours, and no fraction without end.
        is_plain = len(written) <= _PLAIN and written.endswith(("Z", "+00:00"))
        return written if is_plain else at.astimezone(UTC).isoformat()


_UUID, _UUIDS, _NAME, _APP, _VERSION, _AT, _AT_USUAL = (
    re.compile(each, re.ASCII).fullmatch
    for each in (ID, rf"{ID}(\n{ID})*+", NAME, APP, VERSION, _INSTANT, _USUAL_INSTANT)
)


def _ids(given: list[str]) -> list[str]:
    """Those of all events in small letters, or ``ValueError``."""
    lines = "\n".join(given)
    ids = lines.lower().split("\n")
    if not _UUIDS(lines) or len(ids) != len(given):
        raise ValueError
    return ids


def _texts(given: list[Any]) -> list[str]:
    """The properties of all events as ``_properties`` gives them, or ``ValueError`` where one may be refused."""
    if not {dict, NoneType}.issuperset(map(type, given)):
        raise ValueError
    texts = ["{}" if each is None else orjson.dumps(each).decode() for each in given]
    whole = "\n".join(texts)
    # No character takes more than four bytes. What is infinite is null here.
    if (
        max(map(len, texts)) > PROPERTIES_BYTES // 4
        or any(each in whole for each in ("null", "\\u0000"))
        or any(each.count("{") + each.count("[") > PROPERTIES_LEVELS for each in texts)
    ):
        raise ValueError
    if not is_suspect(whole):
        return texts
    return [
        _written(scrubbed(each)) if is_suspect(text) else text
        for each, text in zip(given, texts, strict=True)
    ]


def _text(
    given: dict[str, Any],
    member: str,
    fits: Callable[[str], object],
    expected: str,
    *,
    needed: bool = True,
) -> str:
    value = given.get(member)
    if isinstance(value, str) and fits(value):
        return value
    if value is not None:
        raise BadEvent(f"/{member}", "invalid", f"This must be {expected}.")
    if needed:
        raise BadEvent(f"/{member}", "required", "This member is needed.")
    return ""


def _properties(given: Any) -> str:
    if given is None:
        return "{}"
    if not isinstance(given, dict):
        raise BadEvent("/properties", "invalid", "Properties are an object.")
    text = _written(given)
    if _bytes(text) > PROPERTIES_BYTES:
        raise BadEvent(
            "/properties", "too_large", f"Properties take at most {PROPERTIES_BYTES:,} bytes."
        )
    if _may_have_faults(text):
        for place, level, value in _values(given, "/properties", 1):
            _judge(place, level, value)
    return _written(scrubbed(given)) if is_suspect(text) else text


def _written(value: dict[str, Any]) -> str:
    """As compact JSON, half characters, infinity and integers of any size included."""
    try:
        text = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return _json(value)
    # So it also writes what is infinite.
    return _json(value) if "null" in text else text


def _bytes(text: str) -> int:
    if text.isascii():
        return len(text)
    # Half a character is found later; for now it only has to be counted.
    return len(text.encode("utf-8", "surrogatepass"))


def _may_have_faults(text: str) -> bool:
    """Whether it is worth looking at every value; most events hold nothing that could be wrong."""
    return (
        not _can_be_kept(text)
        or "\\u0000" in text
        or "Infinity" in text
        or text.count("{") + text.count("[") > PROPERTIES_LEVELS
    )


def _values(container: Container, at: str, level: int) -> Iterator[tuple[str, int, Any]]:
    """Every value within, each container before what is in it: pointer, level of its container, value."""
    within = container.items() if isinstance(container, dict) else enumerate(container)
    for key, value in within:
        if isinstance(key, str):
            _judge(at, level, key)
        place = at + pointer((key,))
        yield place, level, value
        if isinstance(value, dict | list):
            yield from _values(value, place, level + 1)


def _judge(at: str, level: int, value: Any) -> None:
    if isinstance(value, dict | list) and level >= PROPERTIES_LEVELS:
        raise BadEvent(at, "too_deep", f"Properties have at most {PROPERTIES_LEVELS} levels.")
    if isinstance(value, str) and not _can_be_kept(value):
        raise BadEvent(at, "invalid_characters", "This holds NUL or half a character.")
    if isinstance(value, float) and not isfinite(value):
        # 1e400 is read as infinity.
        raise BadEvent(at, "out_of_range", "This number is too large.")


def _can_be_kept(text: str) -> bool:
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_json = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
