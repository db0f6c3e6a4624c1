"""An HTTP request to another service and its answer, read with a timeout and cut at any moment.

A background task sends the request and reads the answer into a bounded queue, because a read cannot be resumed after
its timeout. The consumer waits on the queue. A cut kills the task in any phase under gevent; under plain threads the
consumer leaves at once, and the task sends nothing more and ends at its own timeout.
"""

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from queue import Empty, Queue
from typing import Any, Self

from config.greenlets import spawn, within
from config.http.client import Client, Limits
from config.http.errors import Broken, ExchangeError, TimedOut
from config.http.transfer import LATE, Head, Transfer

# The most reads by which the task is ahead of the consumer.
READS_AHEAD = 16
# For each address of a name, so that time is left for the next. TCP tries again after 1 and 3 s.
ADDRESS_SECONDS = 4.0


class Exchange:
    """One request and its answer, for one consumer, which has to close it. The constructor sends the request.

    Redirects are answers like any other. After a failure each method raises the same failure again.
    """

    def __init__(
        self,
        client: Client,
        *,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        limits: Limits,
        method: str = "POST",
    ) -> None:
        self._limits = limits
        self._transfer = Transfer(client, limits, (method, url, headers, body))
        self._items: Queue[Head | bytes | ExchangeError] = Queue(READS_AHEAD)
        self._head: Head | None = None
        # Taken from the queue behind a piece of the body.
        self._held: Head | bytes | ExchangeError | None = None
        self._ended = False
        self._failure: ExchangeError | None = None
        self._task = spawn(self._run)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def head(self, timeout: float) -> Head | None:
        """Returns status and headers, or None after `timeout` seconds. Raises Unreachable, Broken or TimedOut."""
        if self._failure is not None:
            raise self._failure.copy()
        if self._head is None:
            self._head = self._take(timeout)
        return self._head

    def await_head(self) -> Head:
        """Returns status and headers within the deadline. Raises as `head` does."""
        head = self.head(self._limits.left())
        assert head is not None  # the deadline raises
        return head

    def chunk(self, timeout: float) -> bytes | None:
        """Returns the next bytes of the body, b"" at its end, None after `timeout` seconds of silence.

        Raises Unreachable, Broken, TimedOut or TooLarge.
        """
        if self._ended:
            return b""
        if self._head is None and self.head(timeout) is None:
            return None
        piece: bytes | None = self._take(timeout)
        self._ended = piece == b""
        if not piece or self._items.empty():
            return piece
        # All bytes received so far become one piece, because the relay's work is per piece.
        pieces = [piece]
        while self._held is None and not self._items.empty():
            item = self._items.get()
            if item and isinstance(item, bytes):
                pieces.append(item)
            else:
                self._held = item
        return b"".join(pieces)

    def __iter__(self) -> Iterator[bytes]:
        """The rest of the body within read timeout and deadline. Raises as `chunk` does."""
        while not self._ended:
            yield self.chunk(self._limits.left()) or b""

    def body(self) -> bytes:
        return b"".join(self)

    def sent_at(self) -> float | None:
        """When the request was sent, on the monotonic clock; None where the server cannot have received it."""
        attempt = self._transfer.attempt
        return attempt.sent_at if attempt.sent else None

    def close(self) -> None:
        """Cuts the connection, unless the answer was read to its end and the pool has the connection.

        Idempotent, and never waits. Any thread may call it: a waiting consumer gets Broken.
        """
        self._cut(Broken, "the exchange was closed")

    def _take(self, timeout: float) -> Any:
        """The next item of the queue, None after `timeout` seconds; raises a failure."""
        item, self._held = self._held, None
        if item is None and self._failure is None:
            left = self._limits.left()
            try:
                item = self._items.get(timeout=max(0.0, min(timeout, left)))
            except Empty:
                if timeout >= left:
                    self._cut(TimedOut, LATE)
        if isinstance(item, ExchangeError):
            self._failure = self._failure or item
        if self._failure is not None:
            raise self._failure.copy()
        return item

    def _cut(self, kind: type[ExchangeError], message: str) -> None:
        """Ends the task and wakes the consumer, which gets the first failure."""
        # First, so that nothing is sent once ``sent`` was read.
        self._transfer.cut()
        self._failure = self._failure or kind(message, sent=self._transfer.attempt.sent)
        self._task.kill()
        while not self._items.empty():
            self._items.get()
        self._items.put(self._failure)

    def _run(self) -> None:
        try:
            within(self._limits.left(), self._fetch)
        except TimeoutError:
            self._cut(TimedOut, LATE)

    def _fetch(self) -> None:
        """Puts the answer into the queue, and then b"" or the failure that ended it."""
        last: bytes | ExchangeError = b""
        try:
            with closing(self._transfer.parts()) as parts:
                for part in parts:
                    self._items.put(part)
        except Exception as error:  # noqa: BLE001 - the consumer waits for any failure
            last = self._transfer.failure_of(error)
        self._items.put(last)


@contextmanager
def exchange_once(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes = b"",
    limit: int,
    silence: float,
    deadline: float,
) -> Iterator[Exchange]:
    """An exchange over a connection of its own, begun once, with a server that this machine's authorities vouch for.

    ``silence`` limits each wait for bytes in seconds, ``deadline`` everything, and ``limit`` the bytes of the body.
    """
    limits = Limits(
        connect_timeout=deadline - time.monotonic(),
        first_byte_timeout=silence,
        read_timeout=silence,
        deadline=deadline,
        max_bytes=limit,
        address_timeout=min(ADDRESS_SECONDS, silence),
    )
    # ``SSL_CERT_FILE`` names others; the public ones serve where there are none.
    authorities = ssl.get_default_verify_paths()
    with (
        closing(Client(ca_bundle=authorities.cafile or authorities.capath)) as client,
        Exchange(
            client, method=method, url=url, headers=headers, body=body, limits=limits
        ) as exchange,
    ):
        yield exchange
