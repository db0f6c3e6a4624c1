"""Where the body of an HTTP answer ends: with its length, its last chunk, or its connection (RFC 9112, 6 and 7).

Bytes are taken as they come, so whoever receives them can stop waiting at any moment and go on later.
"""

import re
from http.client import HTTPException, IncompleteRead

from llmproxy.heads import BadHead, Head

_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?")
_LENGTH = re.compile(r"[0-9]{1,15}")
NO_BODY = frozenset({204, 304})
_PLAIN_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
# A line with the size of a chunk, or one of the lines after the last chunk, is no longer.
MAX_LINE = 64 * 1024


class NotChunked(HTTPException):
    """What should be the size of a chunk, or its end, is something else."""


class Framing:
    """A body that lasts as long as its connection.

    `over` once it is whole; `exceeded` where more came than that, after which nothing on the connection can be trusted.
    """

    over = False
    exceeded = False

    def take(self, data: bytes) -> bytes:
        """The part of the body that is in these bytes, which come next."""
        return data

    def end(self) -> None:
        """There are no more bytes. Raises HTTPException where there should be."""
        self.over = True


class Sized(Framing):
    """A body of so many bytes."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.over = not length

    def take(self, data: bytes) -> bytes:
        body = data[: self._left]
        self._left -= len(body)
        self.over = not self._left
        self.exceeded = len(body) < len(data)
        return body

    def end(self) -> None:
        raise IncompleteRead(b"", self._left)


class Chunked(Framing):
    """A body in chunks, each after a line with its size; those of several chunks are put together."""

    def __init__(self) -> None:
        # What could not be made sense of yet, and how much of the present chunk is to come, with its line end.
        self._waiting = b""
        self._left = 0
        self._is_last = False

    def take(self, data: bytes) -> bytes:
        if self._waiting:
            data = self._waiting + data
        elif not self._left and not self._is_last and (whole := _whole(data)):
            return whole
        parts, at = [], 0
        while at < len(data) and not self.over:
            if self._left > 2:
                part = data[at : at + self._left - 2]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
            elif self._left:
                if len(data) - at < self._left:
                    break
                if data[at : at + 2] != b"\r\n":
                    raise NotChunked
                at, self._left = at + 2, 0
            elif (end := data.find(b"\n", at, at + MAX_LINE + 1)) >= 0:
                self._line(data[at:end].removesuffix(b"\r"))
                at = end + 1
            else:
                break
        self._waiting = data[at:]
        if len(self._waiting) > MAX_LINE:
            raise NotChunked
        self.exceeded = self.over and bool(self._waiting)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def end(self) -> None:
        raise IncompleteRead(b"")

    def _line(self, line: bytes) -> None:
        if self._is_last:
            # Lines after the last chunk are headers that nobody asked for; an empty one is the end.
            self.over = not line
        elif size := _SIZE.fullmatch(line):
            self._left = int(size[1], 16) + 2
            if self._left == 2:
                self._left, self._is_last = 0, True
        else:
            raise NotChunked


def _whole(data: bytes) -> bytes:
    """What is in these bytes if they are one whole chunk, as those of a stream mostly are; else nothing."""
    line = _PLAIN_SIZE.match(data)
    if line is None or line.end() + int(line[1], 16) + 2 != len(data) or not data.endswith(b"\r\n"):
        return b""
    return data[line.end() : -2]


def framing_of(head: Head) -> Framing:
    """That of an answer to a request that may have one. Raises ``BadHead`` where its length is not clear."""
    if head.status in NO_BODY:
        return Sized(0)
    codings = {
        each.strip().lower() for each in head.headers.get("Transfer-Encoding", "").split(",")
    }
    if codings := codings - {"", "identity"}:
        # Proxies say it twice. Anything else was not asked for and cannot be read.
        if codings != {"chunked"}:
            raise BadHead
        return Chunked()
    if (said := head.headers.get("Content-Length")) is None:
        return Framing()
    lengths = {each.strip() for each in said.split(",")}
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise BadHead
    return Sized(int(length))
