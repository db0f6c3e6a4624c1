"""One HTTP request to a provider that can be waited for with a timeout and cut at any moment.

A thread sends the request and waits for the head of the answer, which no timeout can interrupt and leave whole. From
there on whoever wants the answer receives it from its socket, without a thread and a queue between the two: bytes can
be waited for again and again. It is plain threading, so under gevent the thread is a greenlet. Whoever has nothing to
say before the answer is whole needs no thread at all.
"""

import _thread
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

from llmproxy.connections import Answer, Connections, Request
from llmproxy.framing import Framing
from llmproxy.heads import Head
from llmproxy.sockets import Line
from llmproxy.tries import Tries, root_of


class ExchangeError(Exception):
    """The provider did not give a whole answer.

    `sent` says whether it may have received the whole request: where False, repeating the call
    cannot make it happen twice. The text holds no address, header or body.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Unreachable(ExchangeError):
    """No connection within the connect timeout: name, network, refusal, TLS, or a bad request."""


class Broken(ExchangeError):
    """The connection failed, the answer stopped before its end, or it cannot be read."""


class TimedOut(ExchangeError):
    """The provider was silent for longer than the read timeout, or the deadline passed."""


class TooLarge(ExchangeError):
    """The body of the answer is longer than it may be."""


class Exchange:
    """One request and its answer, made by `open_exchange`. For one consumer; close it always.

    What failed once fails again in the same way. Seconds throughout.
    """

    def __init__(self, line: Line, max_bytes: int) -> None:
        self._line = line
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        # Set with the head, or with what there is in place of it.
        self._is_there = threading.Event()
        self._head: Head | None = None
        self._answer: Answer | None = None
        self._framing = Framing()
        # What came with the head, or cannot be given before the next call.
        self._ahead = b""
        self._size = 0
        self._is_received = False
        self._ended = False
        self._failure: ExchangeError | None = None
        self._begin: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def head(self, timeout: float) -> Head | None:
        """Return status and headers, or None when they are not there after `timeout` seconds.

        Raises Unreachable, Broken or TimedOut.
        """
        if self._begin is not None:
            begin, self._begin = self._begin, None
            begin()
        if self._head is None and self._failure is None:
            self._wait(timeout)
        if self._failure is not None:
            raise _anew(self._failure)
        return self._head

    def chunk(self, timeout: float) -> bytes | None:
        """Return the next bytes of the body as they come, b"" at its end.

        None after `timeout` seconds of silence; the head, too, ends a silence. Raises Unreachable,
        Broken, TimedOut or TooLarge.
        """
        if self._ended:
            return b""
        if self._head is None and self.head(timeout) is None:
            return None
        # Said before it is looked whether this was closed, as that is said before it is looked who receives: of two
        # at once, one sees the other.
        self._is_received = True
        try:
            return self._next(time.monotonic() + timeout)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the end of this answer
            raise _anew(self.fail(error)) from None
        finally:
            self._is_received = False
            if self._failure is not None:
                self._drop()

    def body(self) -> bytes:
        """Return the rest of the body, waiting as long as read timeout and deadline allow.

        Raises as `chunk` does.
        """
        pieces: list[bytes] = []
        while not self._ended:
            pieces.append(self.chunk(self._line.deadline - time.monotonic()) or b"")
        return b"".join(pieces)

    def close(self) -> None:
        """Cut the connection now, unless the answer was read to its end and it waits for its next use already.

        Idempotent and at once. Any thread may call it: a consumer that waits gets Broken.
        """
        with self._lock:
            if self._failure is None:
                self._failure = Broken("the exchange was closed", sent=self._line.sent)
            self._line.cut()
            # A consumer that is receiving finds the end of the connection, and does the rest.
            if not self._is_received:
                self._drop()
        self._is_there.set()

    def begins_with(self, begin: Callable[[], None]) -> None:
        """Whoever asks for the head first does this, and waits for as long as it takes."""
        self._begin = begin

    def arrive(self, answer: Answer) -> None:
        """The head has come, and some of what follows it may have."""
        with self._lock:
            self._answer, self._ahead = answer, answer.ahead
            self._head, self._framing = answer.head, answer.framing
            if self._failure is not None:
                self._drop()
        self._is_there.set()

    def fail(self, error: BaseException) -> ExchangeError:
        """There is no more of this answer; what its consumer is told. The first failure counts."""
        failure = (
            _anew(error) if isinstance(error, ExchangeError) else _explained(error, self._line)
        )
        with self._lock:
            failure = self._failure = self._failure or failure
        self._is_there.set()
        return failure

    def _wait(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        while not self._is_there.is_set():
            now = time.monotonic()
            if now >= self._line.limit():
                # The reader keeps the limit too, except in name lookup, which has none.
                self._line.cut()
                self.fail(TimeoutError())
            elif now >= until:
                return
            else:
                self._is_there.wait(min(until, self._line.limit()) - now)

    def _next(self, until: float) -> bytes | None:
        if self._failure is not None:
            raise _anew(self._failure)
        assert self._head is not None
        if not self._size and _is_encoded(self._head):
            raise Broken("the answer is in an encoding that was not asked for", sent=True)
        piece = b""
        if self._ahead:
            ahead, self._ahead = self._ahead, b""
            piece = self._taken(ahead)
            # From here on a silence is one within an answer.
            self._line.answering = self._line.answering or bool(piece)
        while not piece and not self._framing.over:
            data = self._line.receive(until - time.monotonic())
            if self._failure is not None:
                raise _anew(self._failure)
            if data is None:
                if time.monotonic() >= until:
                    return None
            elif data:
                piece = self._taken(data)
            else:
                self._framing.end()
        if self._framing.over:
            self._leave()
        self._ended = not piece
        return piece

    def _taken(self, data: bytes) -> bytes:
        piece = self._framing.take(data)
        self._size += len(piece)
        if self._size > self._max_bytes:
            raise TooLarge(f"the answer is over {self._max_bytes} bytes", sent=True)
        return piece

    def _leave(self) -> None:
        """The answer is whole: its connection can be used again."""
        if self._framing.exceeded:
            self._drop()
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.leave(self._line)

    def _drop(self) -> None:
        """The connection is of no more use to anyone."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.drop()


def _anew(failure: ExchangeError) -> ExchangeError:
    """The same, to be kept or to be raised: one that was raised holds on to the frames, and to whoever keeps it."""
    return type(failure)(str(failure), sent=failure.sent)


def _is_encoded(head: Head) -> bool:
    return head.headers.get("Content-Encoding", "identity").strip().lower() != "identity"


class _Asking(NamedTuple):
    """One request, sent until an answer stands, and where its head is handed to."""

    exchange: Exchange
    line: Line
    connections: Connections
    request: Request
    tries: Tries

    def run(self) -> None:
        try:
            self.exchange.arrive(self._answer())
        except Exception as error:  # noqa: BLE001 - whatever it is, the consumer waits to be told
            self.exchange.fail(error)

    def _answer(self) -> Answer:
        """The first answer that stands, or raises what the last try failed with."""
        while True:
            try:
                answer = self.connections.ask(self.line, self.request)
            except Exception as error:
                wait = self.tries.wait_after_failure(error, self.line)
                if wait is None:
                    raise
            else:
                wait = self.tries.wait_after_refusal(answer.head.status, answer.head.headers)
                if wait is None:
                    return answer
                answer.drop()
            self.line.try_again(wait)


def _explained(error: BaseException, line: Line) -> ExchangeError:
    """Say what `error` means for the caller, by the name of its root cause and no more."""
    error = root_of(error)
    reason = type(error).__name__
    if time.monotonic() >= line.deadline:
        return TimedOut("the deadline has passed", sent=line.sent)
    if not line.connected:
        return Unreachable(f"no connection to the provider ({reason})", sent=False)
    if isinstance(error, TimeoutError):
        return TimedOut("the provider is silent", sent=line.sent)
    return Broken(f"the connection to the provider broke ({reason})", sent=line.sent)


def open_exchange(  # noqa: PLR0913 - a request, and the limits that hold for it
    *,
    connections: Connections,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    connect_timeout: float,
    read_timeout: float,
    deadline: float,
    max_bytes: int,
    first_byte_timeout: float | None = None,
    patience: float = 0.0,
    in_thread: bool = True,
) -> Exchange:
    """Start one request and return at once, or where not `in_thread`, make it when its head is asked for.

    `connect_timeout` covers name lookup, connection and TLS together; `first_byte_timeout` (None: as
    `read_timeout`) each silence from there to the first byte of the body, `read_timeout` each one
    after it; `deadline` (monotonic clock) everything. `max_bytes` limits the body of the answer.
    What `llmproxy.tries` holds for harmless is sent again for as long as `patience` lasts.
    Redirects are answers like any other, no cookies are kept, and an identity encoding is asked for.
    """
    line = Line(
        connect_timeout=connect_timeout,
        first_byte_timeout=read_timeout if first_byte_timeout is None else first_byte_timeout,
        read_timeout=read_timeout,
        deadline=deadline,
    )
    exchange = Exchange(line, max_bytes)
    tries = Tries(until=time.monotonic() + patience if patience else 0.0)
    request = Request(method, url, headers, body)
    asking = _Asking(exchange, line, connections, request, tries)
    if in_thread:
        # A ``threading.Thread`` waits until it has begun, and is two dozen objects more for each stream.
        _thread.start_new_thread(asking.run, ())
    else:
        exchange.begins_with(asking.run)
    return exchange
