"""Server-sent events, in the usual framing and in those that parsers get wrong."""

import json
from typing import Any

from tests.standins.provider.wire import dump

DONE = "[DONE]"
LINE_ENDS = {"crlf": b"\r\n", "cr": b"\r"}
COMMENTS = b": stand-in comment\n\n: another one\ndata: %b\n: and one more\n\n"


def frame(data: dict[str, Any] | str, framing: str) -> list[bytes]:
    """One event as the pieces to write; a dict is sent as JSON."""
    line = dump(data) if isinstance(data, dict) else data.encode()
    if framing == "comments":
        return [COMMENTS % line]
    if framing == "nospace":
        return [b"data:%b\n\n" % line]
    if framing == "multiline":
        return [b"".join(b"data: %b\n" % part for part in _lines(data)) + b"\n"]
    if framing == "split":
        return _split(b"data: %b\n\n" % line)
    end = LINE_ENDS.get(framing, b"\n")
    return [b"data: %b%b%b" % (line, end, end)]


def _lines(data: dict[str, Any] | str) -> list[bytes]:
    """JSON over several lines, broken only where white space may stand."""
    if isinstance(data, str):
        return [data.encode()]
    return json.dumps(data, ensure_ascii=False, indent=1).encode("utf-8", "replace").split(b"\n")


def _split(event: bytes) -> list[bytes]:
    """Cut in the field's name, inside a non-ASCII character (or halfway), between the line ends."""
    middle = next((at + 1 for at, byte in enumerate(event) if byte >= 0xC0), len(event) // 2)
    return [event[:3], event[3:middle], event[middle:-1], event[-1:]]
