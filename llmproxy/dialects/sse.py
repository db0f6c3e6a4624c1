"""Server-sent events: parsed as their bytes arrive, and written."""

import re
from json import dumps
from typing import Any, NamedTuple

import orjson

MAX_EVENT_BYTES = 4 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")
# The first line end is atomic, or the halves of one "\r\n" would pass for two line ends.
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?:\r\n|\n|\r)")
# The bytes at the end of the buffer that may belong to a blank line that is not whole yet.
_OVERLAP = 2
# The begin and end of nearly every event of a provider.
_DATA = b"data:"
_END = b"\n\n"


class EventTooLarge(Exception):
    """One event of the stream is longer than the parser's limit."""


class Event(NamedTuple):
    """One block of the stream, up to and with the blank line that ends it.

    `raw` is the block as received: the `raw` of all events together are the stream, so a block can
    be forwarded untouched. Only what `finish` returns may lack its blank line.
    `data` is the values of its `data` lines joined by a newline, undecoded; None where these are
    blank or there is none (comments, or a blank line alone), so that nothing is dispatched for it.
    `event` is its name, None for an unnamed one.
    """

    raw: bytes
    data: bytes | None
    event: str | None


def data_event(value: Any) -> bytes:
    """An event whose data is JSON."""
    try:
        data = orjson.dumps(value)
    except TypeError:
        # Half a surrogate pair, or an integer of more than 64 bits.
        data = dumps(value, separators=(",", ":")).encode()
    return b"data: " + data + b"\n\n"


class EventParser:
    """Cuts a stream into events, however its bytes are grouped; each byte is looked at once.

    Lines end in LF, CRLF or CR. Since a CR may be the first half of a CRLF, an event whose last
    byte so far is a CR is kept back until the next byte or the end.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._buffer = bytearray()
        self._searched = 0
        self._at_start = True
        self._too_large = False

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes; return the events they complete, in order.

        Raises EventTooLarge where an event passes the limit, after the events before it have been
        returned (that is, on the following call where there were any).
        """
        if (
            not (self._buffer or self._too_large)
            and len(data) <= self._max
            and (events := _plain(data))
        ):
            self._at_start = False
            return events
        self._buffer += data
        return self._events(final=False)

    def finish(self) -> list[Event]:
        """Return what is left at the end of the stream: at most one event, perhaps unterminated."""
        return self._events(final=True)

    def _events(self, *, final: bool) -> list[Event]:
        events: list[Event] = []
        start = 0
        while not self._too_large and (end := self._end(start, final=final)):
            self._too_large = end - start > self._max
            if not self._too_large:
                events.append(self._event(bytes(self._buffer[start:end])))
                start = self._searched = end
        del self._buffer[:start]
        self._searched -= start
        if self._too_large or len(self._buffer) > self._max:
            self._too_large = True
            self._buffer.clear()
            if not events:
                raise EventTooLarge
        return events

    def _end(self, start: int, *, final: bool) -> int:
        """Returns the end of the event that begins at `start`; 0 where it is not known yet."""
        buffer = self._buffer
        first = start + len(_BOM) if self._at_start and buffer.startswith(_BOM) else start
        blank = _LINE_END.match(buffer, first) or _BLANK_LINE.search(buffer, self._searched)
        if blank is None:
            self._searched = max(start, len(buffer) - _OVERLAP)
            return len(buffer) if final and start < len(buffer) else 0
        if not final and blank.end() == len(buffer) and buffer.endswith(b"\r"):
            self._searched = max(start, blank.start())
            return 0
        return blank.end()

    def _event(self, raw: bytes) -> Event:
        text = raw.removeprefix(_BOM) if self._at_start else raw
        self._at_start = False
        data: list[bytes] = []
        name: str | None = None
        for line in text.splitlines():
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
            elif field == b"event":
                name = value.removeprefix(b" ").decode("utf-8", "replace") or None
        return Event(raw, _said(b"\n".join(data)), name)


def _plain(data: bytes) -> list[Event]:
    """The events in these bytes if each is whole and has one line, as providers mostly send them; else none."""
    if not data.endswith(_END) or b"\r" in data:
        return []
    if data.find(b"\n") == len(data) - len(_END) and data.startswith(_DATA):
        # One event.
        return [Event(data, _said(data[len(_DATA) : -len(_END)].removeprefix(b" ")), None)]
    events: list[Event] = []
    for line in data[: -len(_END)].split(_END):
        if not line.startswith(_DATA) or b"\n" in line:
            return []
        events.append(Event(line + _END, _said(line[len(_DATA) :].removeprefix(b" ")), None))
    return events


def _said(data: bytes) -> bytes | None:
    """The data of an event, None for blank ones: servers and proxies keep a stream alive with them."""
    return data if data and not data.isspace() else None
