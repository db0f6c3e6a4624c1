"""An HTTP request to another service and its answer, read with a timeout and cut at any moment.

A background task sends the request and reads the answer into a bounded queue, because a read cannot be resumed after
its timeout. The consumer waits on the queue. A cut kills the task in any phase under gevent; under plain threads the
consumer leaves at once, and the task sends nothing more and ends at its own timeout.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from queue import Empty, Queue
from typing import Any, Literal, NamedTuple, Self

from requests import PreparedRequest, Response

from config.greenlets import spawn, within
from config.http.client import Attempt, Client, machine_authorities, prepared
from config.http.retries import Retries, root_of

# The most bytes per read, and the most reads by which the task is ahead of the consumer.
READ_BYTES = 16 * 1024
READS_AHEAD = 16
# For each address of a name, so that time is left for the next. TCP tries again after 1 and 3 s.
ADDRESS_SECONDS = 4.0

Reason = Literal["too_slow", "too_large", "truncated", "unreachable"]


class ExchangeError(Exception):
    """No whole answer arrived.

    `sent`: the server may have received the whole request; if not, it is safe to repeat it. The text holds no address,
    header or body.
    """

    reason: Reason

    def __init__(self, message: str, *, sent: bool, reason: Reason | None = None) -> None:
        super().__init__(message)
        self.sent = sent
        self.reason = reason or type(self).reason

    def copy(self) -> Self:
        """A copy to keep or raise: a raised exception refers to its frames, which would refer to it."""
        return type(self)(str(self), sent=self.sent, reason=self.reason)


class Unreachable(ExchangeError):
    """No connection within the connect timeout: name, network, refusal, TLS, or a bad request."""

    reason = "unreachable"


class Broken(ExchangeError):
    """The connection failed, or the answer is truncated or unreadable."""

    reason = "truncated"


class TimedOut(ExchangeError):
    """The server was silent for longer than the read timeout, or the deadline passed."""

    reason = "too_slow"


class TooLarge(ExchangeError):
    """The body of the answer is longer than the limit."""

    reason = "too_large"


class Head(NamedTuple):
    """Status and headers of an answer; header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]


class Limits(NamedTuple):
    """The limits of an exchange: seconds, times on the monotonic clock, and bytes.

    `connect_timeout` covers name look-up, connection and TLS together, `address_timeout` one address of the name;
    `first_byte_timeout` each silence from there to the first byte of the body, `read_timeout` each silence after it;
    `deadline` everything; `max_bytes` the body of the answer. No new attempt begins after `retry_until`, and few are
    made where the call `has_next`, another route.
    """

    connect_timeout: float
    first_byte_timeout: float
    read_timeout: float
    deadline: float
    max_bytes: int
    retry_until: float = 0.0
    has_next: bool = False
    address_timeout: float | None = None


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
        self._client = client
        self._limits = limits
        self._attempt = self._new_attempt(is_first=True)
        self._items: Queue[Head | bytes | ExchangeError] = Queue(READS_AHEAD)
        self._head: Head | None = None
        # Taken from the queue behind a piece of the body.
        self._held: Head | bytes | ExchangeError | None = None
        self._ended = False
        self._failure: ExchangeError | None = None
        self._task = spawn(self._run, method, url, headers, body)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The consumer's side

    def head(self, timeout: float) -> Head | None:
        """Returns status and headers, or None after `timeout` seconds. Raises Unreachable, Broken or TimedOut."""
        if self._failure is not None:
            raise self._failure.copy()
        if self._head is None:
            self._head = self._take(timeout)
        return self._head

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
            yield self.chunk(self._left()) or b""

    def body(self) -> bytes:
        return b"".join(self)

    def await_head(self) -> Head:
        """Returns status and headers within the deadline. Raises as `head` does."""
        head = self.head(self._left())
        assert head is not None  # the deadline raises
        return head

    def sent_at(self) -> float | None:
        """When the request was sent, on the monotonic clock; None where the server cannot have received it."""
        return self._attempt.sent_at if self._attempt.sent else None

    def close(self) -> None:
        """Cuts the connection, unless the answer was read to its end and the pool has the connection.

        Idempotent, and never waits. Any thread may call it: a waiting consumer gets Broken.
        """
        self._cut(Broken, "the exchange was closed")

    def _take(self, timeout: float) -> Any:
        """The next item of the queue, None after `timeout` seconds; raises a failure."""
        item, self._held = self._held, None
        if item is None and self._failure is None:
            left = self._left()
            try:
                item = self._items.get(timeout=max(0.0, min(timeout, left)))
            except Empty:
                if timeout >= left:
                    self._cut_late()
        if isinstance(item, ExchangeError):
            self._failure = self._failure or item
        if self._failure is not None:
            raise self._failure.copy()
        return item

    def _cut(self, kind: type[ExchangeError], message: str) -> None:
        """Ends the task and wakes the consumer, which gets the first failure."""
        # First, so that nothing is sent once ``sent`` was read.
        self._attempt.is_cut = True
        self._failure = self._failure or kind(message, sent=self._attempt.sent)
        self._task.kill()
        while not self._items.empty():
            self._items.get()
        self._items.put(self._failure)

    def _cut_late(self) -> None:
        self._cut(TimedOut, "the deadline has passed")

    def _left(self) -> float:
        return self._limits.deadline - time.monotonic()

    # The task's side

    def _run(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        try:
            within(self._left(), self._fetch, method, url, headers, body)
        except TimeoutError:
            self._cut_late()

    def _fetch(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Puts the answer into the queue, and then b"" or the failure that ended it."""
        last: bytes | ExchangeError = b""
        try:
            response = self._answer(prepared(method, url, headers, body))
            with closing(response.raw):
                self._read(response)
        except ExchangeError as error:
            last = error.copy()
        except Exception as error:  # noqa: BLE001 - the consumer waits for any failure
            last = self._failure_of(error)
        self._items.put(last)

    def _answer(self, request: PreparedRequest) -> Response:
        """The first answer that is not retried; raises the failure of the last attempt."""
        if self._left() <= 0:
            raise self._late()
        retries = Retries(until=self._limits.retry_until, has_next=self._limits.has_next)
        while True:
            try:
                response = self._client.ask(
                    request, self._attempt, timeout=self._limits.first_byte_timeout
                )
            except Exception as error:
                wait = retries.wait_after_failure(error, self._attempt)
                if wait is None:
                    raise
            else:
                wait = retries.wait_after_refusal(response.status_code, response.headers)
                if wait is None:
                    return response
                response.raw.close()
            self._attempt = self._new_attempt(is_first=False)
            time.sleep(wait)
            if self._failure is not None:
                raise self._failure.copy()

    def _new_attempt(self, *, is_first: bool) -> Attempt:
        limits = self._limits
        return Attempt(
            connect_timeout=limits.connect_timeout,
            address_timeout=limits.address_timeout or limits.connect_timeout,
            is_first=is_first,
        )

    def _read(self, response: Response) -> None:
        attempt, limits, size = self._attempt, self._limits, 0
        attempt.has_head = True
        self._items.put(Head(response.status_code, response.headers))
        if response.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise Broken("the answer has an encoding that the request excludes", sent=True)
        too_large = TooLarge(f"the answer is over {limits.max_bytes} bytes", sent=True)
        if (response.raw.length_remaining or 0) > limits.max_bytes:
            raise too_large
        read: Callable[[int], bytes] = partial(response.raw.read1, decode_content=False)
        if response.raw.chunked and attempt.answer is not None:
            # The layers of urllib3 take a third of a chunk's CPU, and do nothing for a body in chunks.
            read = attempt.answer.read1
        while piece := read(READ_BYTES):
            if not size and attempt.sock is not None:
                # The socket may be closed already if the server closes the connection after the answer.
                with suppress(OSError):
                    attempt.sock.settimeout(limits.read_timeout)
            size += len(piece)
            if size > limits.max_bytes:
                raise too_large
            self._items.put(piece)
            if self._failure is not None or time.monotonic() >= limits.deadline:
                # Only a plain thread gets here, because it cannot be killed.
                raise self._late()
        if attempt.connection is not None:
            attempt.connection.idle_since = time.monotonic()
        response.raw.release_conn()

    def _failure_of(self, error: BaseException) -> ExchangeError:
        """Translates an error to a failure, whose text names the root cause only."""
        error, attempt = root_of(error), self._attempt
        cause, is_slow = type(error).__name__, isinstance(error, TimeoutError)
        if self._left() <= 0:
            return self._late()
        if not attempt.connected:
            reason: Reason = "too_slow" if is_slow else "unreachable"
            return Unreachable(
                f"no connection to the provider ({cause})", sent=False, reason=reason
            )
        if is_slow:
            return TimedOut("the provider is silent", sent=attempt.sent)
        reason = "truncated" if attempt.has_head else "unreachable"
        broken = f"the connection to the provider broke ({cause})"
        return Broken(broken, sent=attempt.sent, reason=reason)

    def _late(self) -> ExchangeError:
        return TimedOut("the deadline has passed", sent=self._attempt.sent)


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

    Waits ``silence`` seconds for the next bytes and until ``deadline`` for everything; the body has ``limit`` bytes at
    most.
    """
    limits = Limits(
        connect_timeout=deadline - time.monotonic(),
        first_byte_timeout=silence,
        read_timeout=silence,
        deadline=deadline,
        max_bytes=limit,
        address_timeout=min(ADDRESS_SECONDS, silence),
    )
    with (
        Client(ca_bundle=machine_authorities()) as client,
        Exchange(
            client, method=method, url=url, headers=headers, body=body, limits=limits
        ) as asked,
    ):
        yield asked
