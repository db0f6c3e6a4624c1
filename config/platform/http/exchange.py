"""One HTTP request to another service and its answer, read with timeouts and cancellable at any moment.

A background task sends the request and reads the answer's head and first bytes, because these steps of ``requests``
cannot be resumed after a timeout; the consumer waits on a queue, and then reads the rest of the body from the
connection itself. Under gevent a cut kills the task in any phase and shuts the connection down. Under plain threads the
consumer returns at once, and the task sends nothing more and ends at its own timeout.
"""

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from queue import Empty, SimpleQueue
from typing import Any, Self

from config.platform.concurrency.greenlets import spawn, within
from config.platform.http.client import Client, Limits
from config.platform.http.errors import Broken, ExchangeError, TimedOut
from config.platform.http.transfer import LATE, Head, Transfer

# Limit per address of a name, which leaves time for the next one. TCP retransmits after 1 and 3 s.
ADDRESS_SECONDS = 4.0


class Exchange:
    """One request and its answer, for one consumer, which must close it. The constructor sends the request.

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
        self._items: SimpleQueue[Head | bytes | ExchangeError] = SimpleQueue()
        self._head: Head | None = None
        self._has_begun = self._ended = False
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
        head = self.head(self._limits.remaining())
        assert head is not None  # the deadline raises
        return head

    def chunk(self, timeout: float) -> bytes | None:
        """Returns the next bytes of the body, b"" at its end, None after `timeout` seconds of silence.

        Raises Unreachable, Broken, TimedOut or TooLarge.
        """
        if self._ended:
            return b""
        piece: bytes | None
        if self._has_begun:
            piece = self._more(timeout)
        elif self._head is None and self.head(timeout) is None:
            return None
        else:
            piece = self._take(timeout)
            self._has_begun = piece is not None
        self._ended = piece == b""
        return piece

    def __iter__(self) -> Iterator[bytes]:
        """Yields the rest of the body within read timeout and deadline. Raises as `chunk` does."""
        while not self._ended:
            yield self.chunk(self._limits.remaining()) or b""

    def body(self) -> bytes:
        return b"".join(self)

    def sent_at(self) -> float | None:
        """The monotonic time when the request was sent; None where the server cannot have received it."""
        attempt = self._transfer.attempt
        return attempt.sent_at if attempt.sent else None

    def close(self) -> None:
        """Closes the connection, unless the answer was read to its end and the connection returned to the pool.

        Idempotent and non-blocking. Any thread may call it: a waiting consumer gets Broken.
        """
        self._cut(Broken, "the exchange was closed")

    def _take(self, timeout: float) -> Any:
        """Returns the next item of the queue, None after `timeout` seconds; raises a failure."""
        item = None
        if self._failure is None:
            remaining = self._limits.remaining()
            try:
                item = self._items.get(timeout=max(0.0, min(timeout, remaining)))
            except Empty:
                if timeout >= remaining:
                    self._cut(TimedOut, LATE)
        if isinstance(item, ExchangeError):
            self._failure = self._failure or item
        if self._failure is not None:
            raise self._failure.copy()
        return item

    def _more(self, timeout: float) -> bytes | None:
        """Returns the next bytes of the connection, b"" at the end, None after `timeout` seconds; raises a failure."""
        now = time.monotonic()
        remaining = self._limits.deadline - now
        if remaining <= 0:
            # A steady trickle of bytes does not extend the deadline.
            self._cut(TimedOut, LATE)
        if self._failure is not None:
            raise self._failure.copy()
        try:
            piece = self._transfer.more(now, now + min(timeout, remaining))
        except Exception as error:  # noqa: BLE001 - translated
            self._failure = self._failure or self._transfer.failure_of(error)
            self._transfer.close()
        else:
            if self._failure is None and (piece is not None or timeout < remaining):
                return piece
        if self._failure is None:
            self._cut(TimedOut, LATE)
        assert self._failure is not None
        raise self._failure.copy() from None

    def _cut(self, kind: type[ExchangeError], message: str) -> None:
        """Ends the task and wakes the consumer, which gets the first failure."""
        # Comes first, so that nothing is sent after ``sent`` is read.
        self._transfer.cut()
        self._failure = self._failure or kind(message, sent=self._transfer.attempt.sent)
        self._task.kill()
        self._items.put(self._failure)
        self._transfer.close()

    def _run(self) -> None:
        try:
            within(self._limits.remaining(), self._fetch)
        except TimeoutError:
            self._cut(TimedOut, LATE)

    def _fetch(self) -> None:
        """Puts the answer's head and first bytes into the queue, or the failure that ended it."""
        try:
            self._items.put(self._transfer.head())
            self._items.put(self._transfer.first())
            if self._failure is not None:
                # The consumer was cut and reads no more.
                self._transfer.give_up()
        except Exception as error:  # noqa: BLE001 - the consumer waits for any failure
            self._items.put(self._transfer.failure_of(error))
            self._transfer.give_up()
        except BaseException:
            self._transfer.give_up()
            raise


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
    """Makes one exchange on a connection of its own, verified by this machine's certificate authorities.

    ``silence`` limits each wait for bytes in seconds, ``deadline`` the exchange, and ``limit`` the bytes of the body.
    """
    limits = Limits(
        connect_timeout=deadline - time.monotonic(),
        first_byte_timeout=silence,
        read_timeout=silence,
        deadline=deadline,
        max_bytes=limit,
        address_timeout=min(ADDRESS_SECONDS, silence),
    )
    # ``SSL_CERT_FILE`` overrides them; without any, the bundled public ones apply.
    authorities = ssl.get_default_verify_paths()
    with (
        closing(Client(ca_bundle=authorities.cafile or authorities.capath, kept=1)) as client,
        Exchange(
            client, method=method, url=url, headers=headers, body=body, limits=limits
        ) as exchange,
    ):
        yield exchange
