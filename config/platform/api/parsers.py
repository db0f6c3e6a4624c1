"""Parses every JSON body, strictly and within limits of depth and of the number of values."""

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from math import inf, isfinite
from typing import Any, ClassVar

from django.utils.http import parse_header_parameters
from rest_framework.parsers import JSONParser

from config.platform.problems.problem import (
    MAX_FAULTS,
    Fault,
    InvalidRequest,
    MalformedRequest,
    UnsupportedMediaType,
    pointer,
)

MAX_DEPTH = 64
# Checking every value of a body of commas would block all other requests.
MAX_VALUES = 600_000

Container = dict[str, Any] | list[Any]
_CONTAINERS = (dict, list)
# A place in a document: the place of its parent, and its key within that.
Place = tuple[Any, str | int] | None


class ObjectParser(JSONParser):
    """Parses strict JSON in UTF-8 whose top level is an object.

    Refuses as malformed: anything else, an empty body, NaN and Infinity, duplicate members, nesting deeper than 64
    levels, more than 600,000 values. Refuses as invalid, with pointers to at most 20 of them and also in ignored
    members: lone surrogates, numbers beyond a float's range, and integers of thousands of digits. Fields check NUL and
    other large integers. A subclass that checks all values itself sets ``checks_values`` to False, and
    ``takes_constants`` to True to receive NaN and Infinity.
    """

    checks_values: ClassVar[bool] = True
    takes_constants: ClassVar[bool] = False

    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: Any = None
    ) -> dict[str, Any]:
        _refuse_codings(media_type, parser_context)
        constant = float if self.takes_constants else _refuse_constant
        document = parsed(stream.read(), constant=constant)
        if faults := list(islice(_faults(document), MAX_FAULTS)) if self.checks_values else []:
            raise InvalidRequest(errors=faults)
        return document


def _refuse_constant(name: str) -> None:
    raise MalformedRequest(f"The body holds {name}, which is not JSON.")


def parsed(body: bytes, *, constant: Callable[[str], Any] = _refuse_constant) -> dict[str, Any]:
    """Returns a body's JSON object, or raises ``MalformedRequest``; ``constant`` reads NaN and Infinity."""
    if not body.strip():
        raise MalformedRequest("The body must be a JSON object; it was empty.")
    try:
        text = body.decode("utf-8-sig")
        document = _read(text, parse_constant=constant)
    except UnicodeDecodeError:
        raise MalformedRequest("The body is not UTF-8.") from None
    except RecursionError:
        raise MalformedRequest(_TOO_DEEP) from None
    except ValueError:
        raise MalformedRequest("The body is not JSON.") from None
    if not isinstance(document, dict):
        raise MalformedRequest("The body must be a JSON object.")
    if _refuse_shape(document) != _most_members(body):
        # There may be a duplicate member, or a text that looks like one; the slower parse decides.
        _read(text, parse_constant=constant, object_pairs_hook=_members)
    return document


_TOO_DEEP = f"The body is nested deeper than {MAX_DEPTH} levels."


def _refuse_codings(media_type: str | None, parser_context: Mapping[str, Any] | None) -> None:
    _, parameters = parse_header_parameters(media_type or "")
    if parameters.get("charset", "utf-8").lower() not in {"utf-8", "utf8", "us-ascii"}:
        raise UnsupportedMediaType("Send the body as application/json in UTF-8.")
    request = (parser_context or {}).get("request")
    coding = request.META.get("HTTP_CONTENT_ENCODING", "") if request else ""
    if coding.lower() not in {"", "identity"}:
        raise UnsupportedMediaType("Send the body without a content encoding.")


def _read(text: str, **options: Any) -> Any:
    try:
        return json.loads(text, **options)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # An integer has more digits than Python reads by default.
        return json.loads(text, parse_int=_integer, **options)


def _integer(digits: str) -> int | float:
    """Reads an integer that is too long for Python as infinity, as 1e400 is."""
    try:
        return int(digits)
    except ValueError:
        return inf


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses duplicate members, which parsers resolve differently."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise MalformedRequest("An object in the body has the same member twice.")
    return members


def _items(container: Container) -> Iterable[tuple[str | int, Any]]:
    return container.items() if isinstance(container, dict) else enumerate(container)


def _most_members(body: bytes) -> int:
    """Returns an upper bound of the members in a body; a text may look like a member's name."""
    return body.translate(None, b" \t\r\n").count(b'":')


def _refuse_shape(document: dict[str, Any]) -> int:
    """Counts the members without recursion; refuses too many values or levels."""
    level: list[Container] = [document]
    values = members = 0
    for _ in range(MAX_DEPTH):
        values += sum(map(len, level))
        if values > MAX_VALUES:
            raise MalformedRequest(f"The body has more than {MAX_VALUES:,} values.")
        members += sum(len(each) for each in level if type(each) is dict)
        level = [value for each in level for value in _values(each) if type(value) in _CONTAINERS]
        if not level:
            return members
    raise MalformedRequest(_TOO_DEEP)


def _values(container: Container) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _faults(document: dict[str, Any]) -> Iterable[Fault]:
    """Yields faults of the values that cannot be stored or passed on, in no particular order."""
    waiting: list[tuple[Container, Place]] = [(document, None)]
    while waiting:
        container, place = waiting.pop()
        for key, value in _items(container):
            if isinstance(key, str) and not _is_text(key):
                yield Fault(
                    _pointer(place), "invalid_characters", "A name contains an unpaired surrogate."
                )
            elif isinstance(value, dict | list):
                waiting.append((value, (place, key)))
            elif isinstance(value, str) and not _is_text(value):
                yield Fault(
                    _pointer((place, key)),
                    "invalid_characters",
                    "This contains an unpaired surrogate.",
                )
            elif isinstance(value, float) and not isfinite(value):
                # The parser reads 1e400 and the longest integers as infinity.
                yield Fault(_pointer((place, key)), "out_of_range", "This number is too large.")


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pointer(place: Place) -> str:
    parts: list[str | int] = []
    while place is not None:
        place, key = place
        parts.append(key)
    return pointer(reversed(parts))
