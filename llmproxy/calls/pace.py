"""The pace of a stream: what its provider writes in quick succession goes on in one piece.

Most of what a chunk costs is to wake up for it and to wake its reader, so that a fast model's stream costs half as much
at 50 ms.
"""

import time
from contextlib import suppress

from config.platform.http.errors import ExchangeError
from config.platform.http.exchange import Exchange

# The reads that become one piece, between which nobody else has a turn.
MOST_READS = 64


class Pace:
    """The least time between two reads of one answer that flows, in seconds; 0 for none."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # When the last read was, on the monotonic clock.
        self._read_at = 0.0

    def chunk(self, exchange: Exchange, seconds: float) -> bytes | None:
        """Returns the next bytes as the exchange does, and what has come meanwhile with them.

        After a pause it waits for nothing.
        """
        if not self._seconds:
            return exchange.chunk(seconds)
        if (left := self._read_at + self._seconds - time.monotonic()) > 0:
            time.sleep(left)
        pieces = [exchange.chunk(seconds)]
        self._read_at = time.monotonic()
        # One read is one record of TLS. An end or a failure behind these bytes is told again by the next read.
        with suppress(ExchangeError):
            while pieces[-1] and len(pieces) < MOST_READS:
                pieces.append(exchange.chunk(0))
        return b"".join(filter(None, pieces)) or pieces[0]
