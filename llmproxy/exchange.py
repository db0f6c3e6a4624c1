"""One HTTP request to a provider that can be waited for with a timeout and cut at any moment.

A thread sends the request and reads the answer into a short queue; whoever wants the answer waits
on the queue. It is plain threading, so under gevent the thread is a greenlet.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple, Self, TypeAlias

import requests

from llmproxy.sockets import Line, work_for
from llmproxy.tries import Tries, root_of

# How far the reader may be ahead of the consumer: pieces, and bytes in each.
QUEUED_PIECES = 16
PIECE_BYTES = 16 * 1024


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


class Head(NamedTuple):
    """Status and headers of an answer; the headers' names are case-insensitive."""

    status: int
    headers: Mapping[str, str]


_Arriving: TypeAlias = queue.Queue[Head | bytes | ExchangeError]


class Exchange:
    """One request and its answer, made by `open_exchange`. For one consumer; close it always.

    What failed once fails again in the same way. Seconds throughout.
    """

    def __init__(self, line: Line, arriving: _Arriving) -> None:
        self._line = line
        self._arriving = arriving
        self._head: Head | None = None
        self._ended = False
        self._failure: ExchangeError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def head(self, timeout: float) -> Head | None:
        """Return status and headers, or None when they are not there after `timeout` seconds.

        Raises Unreachable, Broken or TimedOut.
        """
        if self._head is None:
            self._next(timeout)
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
        piece = self._next(timeout)
        self._ended = piece == b""
        return piece

    def body(self) -> bytes:
        """Return the rest of the body, waiting as long as read timeout and deadline allow.

        Raises as `chunk` does.
        """
        pieces: list[bytes] = []
        while not self._ended:
            pieces.append(self.chunk(self._line.deadline - time.monotonic()) or b"")
        return b"".join(pieces)

    def close(self) -> None:
        """Let the connection be used again if the answer was read to its end, else cut it now.

        Idempotent and at once. Any thread may call it: a consumer that waits gets Broken.
        """
        if self._failure is None:
            self._failure = Broken("the exchange was closed", sent=self._line.sent)
        self._line.cut()
        # A reader that waits for room in the queue finds it and sees the cut.
        with contextlib.suppress(queue.Empty):
            while True:
                self._arriving.get_nowait()
        # This loop may have taken what a waiting consumer would have been woken by.
        with contextlib.suppress(queue.Full):
            self._arriving.put_nowait(self._failure)

    def _next(self, timeout: float) -> bytes | None:
        """Take what comes next: bytes are returned, the head is kept, an error is raised."""
        item = self._failure or self._wait(timeout)
        if isinstance(item, ExchangeError):
            self._failure = self._failure or item
            raise self._failure
        if isinstance(item, Head):
            self._head = item
            return None
        return item

    def _wait(self, timeout: float) -> Head | bytes | ExchangeError | None:
        until = time.monotonic() + timeout
        while True:
            wait = min(until, self._line.limit()) - time.monotonic()
            try:
                return self._arriving.get(timeout=max(0.0, wait))
            except queue.Empty:
                now = time.monotonic()
                if now >= self._line.limit():
                    # The reader keeps the limit too, except in name lookup, which has none.
                    self._line.cut()
                    return _explained(TimeoutError(), self._line)
                if now >= until:
                    return None


class _Reader(threading.Thread):
    """Sends one request and reads the answer into the queue, whose last item is b"" or an error."""

    def __init__(
        self,
        line: Line,
        arriving: _Arriving,
        session: requests.Session,
        request: requests.Request,
        max_bytes: int,
        tries: Tries,
    ) -> None:
        super().__init__(name="exchange", daemon=True)
        self._line = line
        self._arriving = arriving
        self._session = session
        self._request = request
        self._max_bytes = max_bytes
        self._tries = tries

    def run(self) -> None:
        last: bytes | ExchangeError = b""
        try:
            work_for(self._line)
            self._relay()
        except ExchangeError as error:
            last = error
        except Exception as error:  # noqa: BLE001 - whatever it is, the consumer waits to be told
            last = _explained(error, self._line)
        # A queue that is full until the deadline has no consumer any more.
        with contextlib.suppress(queue.Full):
            self._give(last)

    def _relay(self) -> None:
        with self._answer() as answer:
            self._line.sent = True
            self._give(Head(answer.status_code, answer.headers))
            if answer.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
                raise Broken("the answer is in an encoding that was not asked for", sent=True)
            size = 0
            while piece := answer.raw.read1(PIECE_BYTES, decode_content=False):
                self._line.answering = True
                size += len(piece)
                if size > self._max_bytes:
                    raise TooLarge(f"the answer is over {self._max_bytes} bytes", sent=True)
                self._give(piece)
                self._line.check()

    def _answer(self) -> requests.Response:
        """The first answer that stands, or raises what the last try failed with."""
        prepared = self._request.prepare()
        # Not Session.send: it reads a redirect's body whole and keeps cookies.
        adapter = self._session.get_adapter(prepared.url or "")
        while True:
            try:
                answer = adapter.send(prepared, stream=True)
            except Exception as error:
                wait = self._tries.wait_after_failure(error, self._line)
                if wait is None:
                    raise
            else:
                wait = self._tries.wait_after_refusal(answer.status_code, answer.headers)
                if wait is None:
                    return answer
                answer.close()
            self._line.try_again(wait)

    def _give(self, item: Head | bytes | ExchangeError) -> None:
        self._arriving.put(item, timeout=max(0.0, self._line.deadline - time.monotonic()))


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
    session: requests.Session,
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
) -> Exchange:
    """Start one request on a session of `new_session` and return at once.

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
    arriving: _Arriving = queue.Queue(QUEUED_PIECES)
    asked = {**headers, "Accept-Encoding": "identity"}
    request = requests.Request(method, url, headers=asked, data=body)
    tries = Tries(until=time.monotonic() + patience if patience else 0.0)
    _Reader(line, arriving, session, request, max_bytes, tries).start()
    return Exchange(line, arriving)
