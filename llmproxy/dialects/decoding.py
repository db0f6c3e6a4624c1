"""Decodes answers that some servers and proxies compress although the request does not accept it.

Supported are gzip, deflate, and a plain body whatever its head names; Brotli and others are undecodable. The decoded
size counts towards the limit of the exchange. Decoding yields to other work between pieces.
"""

import time
import zlib
from collections.abc import Iterator, Mapping

from config.platform.http.errors import ExchangeError, TooLarge, Undecodable
from config.platform.http.exchange import Exchange

# Bytes decoded at a time, which blocks the event loop for less than a millisecond.
PIECE = 64 * 1024
_GZIP = frozenset({"gzip", "x-gzip"})
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_DEFLATE = frozenset({"deflate"})
# First bytes of JSON, a page or an event's field, of white space and of a byte order mark. No compressed body begins
# with one: gzip has its own magic number, zlib other letters, and raw deflate a byte beyond ASCII.
_PLAIN = frozenset(b"{[<\"' \t\r\n\xef:deir")


class _Inflated:
    """Decompresses gzip, zlib or raw deflate; raises ``zlib.error`` for anything else."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._stream = zlib.decompressobj(window)
        self._data = b""
        self.is_pending = False

    def feed(self, data: bytes) -> None:
        self._data += data

    def take(self) -> bytes:
        if self._stream.eof:
            # Another gzip member may follow. Anything else is padding.
            if self._window < _GZIP_WINDOW or not self._data.startswith(b"\x1f"):
                self._data, self.is_pending = b"", False
                return b""
            self._stream = zlib.decompressobj(self._window)
        piece = self._stream.decompress(self._data, PIECE)
        has_ended = self._stream.eof
        self._data = self._stream.unused_data if has_ended else self._stream.unconsumed_tail
        # More input or more output may remain.
        self.is_pending = bool(self._data) or len(piece) == PIECE
        return piece


def _decoder(codings: list[str], first: int) -> _Inflated | None:
    """Returns the decoder of a body with these codings and this first byte; None where there is none."""
    if len(codings) > 1:
        return None
    if codings[0] in _GZIP:
        return _Inflated(_GZIP_WINDOW)
    if codings[0] in _DEFLATE:
        # Some servers send raw deflate without the zlib header that the coding requires.
        return _Inflated(zlib.MAX_WBITS if first & 15 == zlib.DEFLATED else -zlib.MAX_WBITS)
    return None


def _codings(headers: Mapping[str, str]) -> list[str]:
    named = headers.get("Content-Encoding", "").lower().split(",")
    return [each for each in map(str.strip, named) if each not in ("", "identity", "none")]


class DecodedExchange(Exchange):
    """An exchange whose answer may be compressed; its limits must have ``decodes`` set."""

    _decoder: _Inflated | None = None
    # The body has turned out to be plain, as nearly all are.
    _is_plain = False
    _size = 0
    _undecoded: ExchangeError | None = None

    def chunk(self, timeout: float) -> bytes | None:
        if self._is_plain:
            return super().chunk(timeout)
        until = time.monotonic() + timeout
        while True:
            if self._undecoded is not None:
                raise self._undecoded.copy()
            if self._decoder is not None and self._decoder.is_pending:
                # Yields to other greenlets.
                time.sleep(0)
            else:
                data = super().chunk(max(0.0, until - time.monotonic()))
                if data is None:
                    return None
                if not data:
                    # A truncated body is detected by its content.
                    return b""
                self._decoder = self._decoder or self._begun(data[0])
                if self._decoder is None:
                    return data
                self._decoder.feed(data)
            if piece := self._decoded():
                return piece

    def __iter__(self) -> Iterator[bytes]:
        while (piece := self.chunk(self._limits.remaining())) != b"":
            yield piece or b""

    def _begun(self, first: int) -> _Inflated | None:
        """Returns the decoder of a body with this first byte, None for a plain one. Raises ``Undecodable``."""
        head = self.head(0)
        codings = _codings(head.headers) if head is not None else []
        self._is_plain = not codings or first in _PLAIN
        decoder = None if self._is_plain else _decoder(codings, first)
        if decoder is None and not self._is_plain:
            self._fail(Undecodable("the answer has a coding that nobody asked for", sent=True))
        return decoder

    def _decoded(self) -> bytes:
        assert self._decoder is not None
        try:
            piece = self._decoder.take()
        except zlib.error:
            self._fail(Undecodable("the answer is not compressed as it says", sent=True))
        self._size += len(piece)
        if self._size > self._limits.max_bytes:
            self._fail(TooLarge(f"the answer is over {self._limits.max_bytes} bytes", sent=True))
        return piece

    def _fail(self, failure: ExchangeError) -> None:
        self._undecoded = failure
        raise failure.copy()
