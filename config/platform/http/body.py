"""Decodes the framing of a body: chunked, by length, or up to the end of the connection (RFC 9112, 6 and 7.1)."""

import re
from http.client import HTTPException, IncompleteRead

# The end of the previous chunk, and the line with the size of the next; extensions are ignored.
_SIZE = re.compile(rb"\r\n0*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
_CRLF = b"\r\n"
_LONGEST_LINE = 16 * 1024


class BadChunk(HTTPException):
    """A chunked body is malformed."""


class Body:
    """Removes the framing from the bytes of a connection as they arrive.

    ``ended``: the body is complete. ``is_followed``: more bytes arrived after its end.
    """

    def __init__(self, *, chunked: bool, length: int | None) -> None:
        # Missing bytes of the body or chunk; None for a body up to the end of the connection.
        self._remaining = 0 if chunked and length != 0 else length
        self._chunked = chunked and length != 0
        # The line break that would end a chunk before the first.
        self._rest = _CRLF
        self._is_last = self.is_followed = False
        self.ended = length == 0

    def decode(self, data: bytes) -> bytes:
        """Returns the decoded bytes; empty data is the end of the connection.

        Raises ``IncompleteRead`` or ``BadChunk``.
        """
        if self._remaining is None:
            self.ended = not data
            return data
        if not data and self._is_last:
            # Only the line after the last chunk is missing. The connection cannot be reused.
            self.ended = self.is_followed = True
            return b""
        if not data:
            raise IncompleteRead(b"")
        if not self._chunked:
            piece = data[: self._remaining]
            self._remaining -= len(piece)
            self.ended = not self._remaining
            self.is_followed = len(piece) < len(data)
            return piece
        data, pieces, at, remaining = self._rest + data, [], 0, self._remaining
        while True:
            if remaining:
                piece = data[at : at + remaining]
                pieces.append(piece)
                at, remaining = at + len(piece), remaining - len(piece)
            if remaining or self._is_last or (line := _SIZE.match(data, at)) is None:
                break
            at, remaining = line.end(), int(line[1], 16)
            self._is_last = not remaining
        self._remaining, self._rest = remaining, data[at:]
        if self._is_last or self._rest != _CRLF:
            self._check_rest()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _check_rest(self) -> None:
        """Checks the bytes after the last whole chunk: the end, or the beginning of the next chunk's line."""
        rest = self._rest
        if self._is_last:
            # Trailers, and an empty line.
            end = _CRLF if rest.startswith(_CRLF) else _CRLF * 2
            _, found, behind = rest.partition(end)
            self.ended, self.is_followed = bool(found), bool(behind)
        elif not _CRLF.startswith(rest[:2]) or rest.count(b"\n") > 1:
            raise BadChunk
        if len(rest) > _LONGEST_LINE:
            raise BadChunk
