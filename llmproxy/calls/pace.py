"""The pace of a stream: what its provider writes in quick succession goes on in one piece.

Most of a chunk's cost is waking up for it and waking its reader. A stream that is slower than the pace costs nothing.
"""

import time

from config.platform.http.errors import ExchangeError
from config.platform.http.exchange import Exchange

# The reads that become one piece, between which nobody else has a turn.
MOST_READS = 64
# A read of so many bytes may have left others behind.
FULL_READ = 8 * 1024


class Pace:
    """The least time between two reads of one answer that flows, in seconds; 0 for none."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # When the last read was, on the monotonic clock.
        self._read_at = 0.0
        # The last chunk came within the pace, so that sleeping before the next one saves a wake-up.
        self._is_quick = False

    def chunk(self, exchange: Exchange, seconds: float) -> bytes | None:
        """Returns the next bytes as the exchange does, and what has come meanwhile with them.

        After a pause it waits for nothing.
        """
        if not self._seconds:
            return exchange.chunk(seconds)
        has_slept = self._is_quick and self._sleep()
        slept_until = self._read_at + self._seconds
        piece = exchange.chunk(seconds)
        if not piece:
            self._is_quick = False
            return piece
        self._is_quick = time.monotonic() < slept_until + (self._seconds if has_slept else 0.0)
        is_full = len(piece) >= FULL_READ
        has_slept |= not is_full and self._sleep()
        self._read_at = time.monotonic()
        return self._rest(exchange, piece) if has_slept or is_full else piece

    def _sleep(self) -> bool:
        """Sleeps until the pace allows the next read; returns whether it had to."""
        if (left := self._read_at + self._seconds - time.monotonic()) <= 0:
            return False
        time.sleep(left)
        return True

    def _rest(self, exchange: Exchange, piece: bytes) -> bytes:
        """These bytes with those that came meanwhile: one read is one record of TLS.

        The next read repeats an end or a failure behind them, without another sleep.
        """
        pieces, more = [piece], None
        try:
            while len(pieces) < MOST_READS and (more := exchange.chunk(0)):
                pieces.append(more)
        except ExchangeError:
            more = b""
        if more == b"":
            self._is_quick = False
        return b"".join(pieces)
