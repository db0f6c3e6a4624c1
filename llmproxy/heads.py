"""What an HTTP/1.1 message begins with: that of our request, and that of a provider's answer (RFC 9112).

The standard library reads an answer's headers as it reads mail, which takes longer than all the rest of asking.
"""

import re
import time
from collections.abc import Iterator, Mapping
from http.client import BadStatusLine, HTTPException
from math import ceil
from typing import NamedTuple

from django.utils.http import parse_http_date_safe

# An answer whose head is longer is none.
MOST_BYTES = 64 * 1024
# No wait is so long that it takes more.
MOST_DIGITS = 9

_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9]\d\d)(?: .*)?")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_A_VALUE = re.compile(r"[\0\r\n]")


class BadHead(HTTPException):
    """A head that cannot be read, or a header that cannot be written. The text holds nothing of it."""


class Headers(Mapping[str, str]):
    """Headers by name, which has no case. Those that come more than once are joined by commas."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def add(self, name: str, value: str) -> None:
        name = name.lower()
        known = self._values.get(name)
        self._values[name] = value if known is None else f"{known}, {value}"

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Head(NamedTuple):
    """Status and headers of an answer, and whether its connection may be used again once its body has ended."""

    status: int
    headers: Headers
    stays: bool


def written(method: str, target: str, host: str, headers: Mapping[str, str], length: int) -> bytes:
    """The head of a request with a body of so many bytes. Raises ``BadHead`` for what no header can hold."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", f"Content-Length: {length}"]
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or _NOT_IN_A_VALUE.search(value):
            raise BadHead
        lines.append(f"{name}: {value}")
    try:
        return "\r\n".join([*lines, "", ""]).encode("latin-1")
    except UnicodeEncodeError:
        raise BadHead from None


def end_of(data: bytes) -> int | None:
    """How many bytes of these are the head; None where it goes on. Raises ``BadHead`` where it is too long."""
    found = _END.search(data)
    end = found and found.end()
    if (len(data) if end is None else end) > MOST_BYTES:
        raise BadHead
    return end


def parsed(head: bytes) -> Head:
    """The head of an answer. Raises an ``HTTPException`` for what is none."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\n")
    status = _STATUS.fullmatch(first.rstrip("\r"))
    if status is None:
        raise BadStatusLine("")
    headers = Headers()
    for line in _unfolded(lines):
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name):
            raise BadHead
        headers.add(name, value.strip(" \t\r"))
    words = {each.strip().lower() for each in headers.get("connection", "").split(",")}
    stays = "close" not in words and (status[1] == "1" or "keep-alive" in words)
    return Head(int(status[2]), headers, stays)


def retry_after(headers: Mapping[str, str]) -> int | None:
    """The seconds of a ``Retry-After``, which may be told as a date; None where there is none that can be read."""
    told = headers.get("Retry-After", "")
    if told.isdecimal():
        return int(told) if len(told) <= MOST_DIGITS else None
    at = parse_http_date_safe(told)
    return None if at is None else max(0, ceil(at - time.time()))


def _unfolded(lines: list[str]) -> list[str]:
    """A line that begins with a space goes on with the one before it."""
    whole: list[str] = []
    for line in lines:
        if line.startswith((" ", "\t")) and whole:
            whole[-1] = f"{whole[-1].rstrip()} {line.strip()}"
        else:
            whole.append(line)
    return whole
