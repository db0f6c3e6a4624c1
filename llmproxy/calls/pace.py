"""The pace of a stream: what its provider writes in quick succession goes on in one piece.

Most of what a chunk costs is to wake up for it and to wake its reader, so that a fast model's stream costs half as much
at 50 ms.
"""

import time

from config.http.exchange import Exchange
from config.http.transfer import READ_BYTES


class Pace:
    """The least time between two reads of one answer that flows, in seconds; 0 for none."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # When the last read was, on the monotonic clock.
        self._read_at = 0.0

    def chunk(self, exchange: Exchange, seconds: float) -> bytes | None:
        """Returns the next bytes as the exchange does, and what has come meanwhile with them.

        After a pause it waits for nothing; a read that has filled its buffer is followed by the next at once.
        """
        if not self._seconds:
            return exchange.chunk(seconds)
        if (left := self._read_at + self._seconds - time.monotonic()) > 0:
            time.sleep(left)
        chunk = exchange.chunk(seconds)
        is_full = chunk is not None and len(chunk) >= READ_BYTES
        self._read_at = 0.0 if is_full else time.monotonic()
        return chunk
