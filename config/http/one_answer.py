"""Outgoing HTTP through ``requests`` with a deadline for the whole exchange.

A timeout of ``requests`` bounds one silence, which a server that keeps sending a little never reaches. A separate task
therefore makes the exchange, including the look-up of the name, and its caller leaves it at the deadline: under gevent
the task is killed wherever it waits, and a plain thread ends at its next timeout or chunk without sending more. It uses
no proxies or credentials of the environment, redirects, retries, cookies or content encodings.
"""

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from io import BytesIO
from queue import Empty, Queue
from typing import Any, Literal, NoReturn

import requests
import urllib3.exceptions
from requests.adapters import HTTPAdapter

from config.greenlets import spawn

# For each address of a name, so that time is left for the next. TCP tries again after 1 and 3 s.
CONNECT_SECONDS = 4.0
CHUNK_BYTES = 256 * 1024
# The number of chunks read ahead of the caller.
AHEAD = 4

Reason = Literal["too_slow", "too_large", "truncated", "unreachable"]
TIMEOUTS = (TimeoutError, requests.Timeout, urllib3.exceptions.TimeoutError)


class NoAnswer(Exception):
    """No complete answer arrived. The text has no address, header or body.

    ``sent``: the server may have read the request's body and acted on it.
    """

    def __init__(self, reason: Reason, *, sent: bool) -> None:
        self.reason = reason
        self.sent = sent
        super().__init__(reason)


class Answer:
    """The status and the headers of an answer; iterating reads its body and raises ``NoAnswer``."""

    def __init__(self, exchange: "_Exchange", status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        length = self.headers.get("Content-Length", "")
        return self._exchange.body(int(length) if length.isdecimal() else 0)

    def read(self) -> bytes:
        return b"".join(self)


@contextmanager
def exchange(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes = b"",
    limit: int,
    silence: float,
    deadline: float,
) -> Iterator[Answer]:
    """Sends a request and yields the answer, whose body has ``limit`` bytes at most.

    Waits ``silence`` seconds for the next bytes and until ``deadline`` (on the monotonic clock) for everything.
    Raises ``NoAnswer``, also while the body is read.
    """
    begun = _Exchange(limit=limit, deadline=deadline)
    begun.refuse_if_late()
    patience = min(CONNECT_SECONDS, silence), silence
    task = spawn(begun.run, method, url, {"Accept-Encoding": "identity", **headers}, body, patience)
    try:
        yield begun.answer()
    finally:
        begun.abandon()
        task.kill()


class _Exchange:
    """Hands an answer from the task that reads it to the caller: its head, its chunks, ``b""`` or an error."""

    def __init__(self, *, limit: int, deadline: float) -> None:
        self._limit = limit
        self._deadline = deadline
        self._parts: Queue[Any] = Queue(AHEAD)
        self._sent = self._abandoned = False

    def run(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        patience: tuple[float, float],
    ) -> None:
        try:
            data = _Body(body, self) if body else None
            request = requests.Request(method, url, headers=headers, data=data).prepare()
            # By the adapter itself: a session reads a redirect's whole body.
            with (
                closing(HTTPAdapter(max_retries=0)) as adapter,
                adapter.send(request, stream=True, timeout=patience, verify=_authorities()) as got,
            ):
                self._put(Answer(self, got.status_code, got.headers))
                while chunk := got.raw.read1(CHUNK_BYTES, decode_content=False):
                    self._put(chunk)
            self._put(b"")
        except Exception as error:  # noqa: BLE001 - raised for the caller
            with suppress(_Abandoned):
                self._put(error)

    def answer(self) -> Answer:
        part = self._next()
        assert isinstance(part, Answer)
        return part

    def body(self, announced: int) -> Iterator[bytes]:
        seen = 0
        while announced <= self._limit and (chunk := self._next()):
            seen += len(chunk)
            if seen > self._limit:
                break
            yield chunk
        if max(seen, announced) > self._limit:
            self._fail("too_large")

    def begin_to_send(self) -> None:
        """Called before the body is sent; nothing may be sent once the caller has left."""
        self._sent = True
        if self._abandoned:
            raise _Abandoned

    def refuse_if_late(self) -> None:
        if time.monotonic() >= self._deadline:
            self._fail("too_slow")

    def abandon(self) -> None:
        """Lets the task end: it may be waiting for room for a chunk."""
        self._abandoned = True
        with suppress(Empty):
            while True:
                self._parts.get_nowait()

    def _put(self, part: Any) -> None:
        if self._abandoned:
            raise _Abandoned
        self._parts.put(part)

    def _next(self) -> Any:
        self.refuse_if_late()
        try:
            part = self._parts.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except Empty:
            self._fail("too_slow")
        if isinstance(part, Exception):
            # An error at the deadline counts as the deadline.
            self.refuse_if_late()
            self._fail(_reason(part))
        return part

    def _fail(self, reason: Reason) -> NoReturn:
        # First, so that nothing is sent after ``sent`` was read.
        self._abandoned = True
        raise NoAnswer(reason, sent=self._sent) from None


class _Abandoned(Exception):
    """The caller has left."""


class _Body(BytesIO):
    """A request's body, which notes that it is being sent."""

    def __init__(self, content: bytes, exchange: _Exchange) -> None:
        super().__init__(content)
        self._exchange = exchange

    def read(self, size: int | None = -1) -> bytes:
        self._exchange.begin_to_send()
        return super().read(size)


def _authorities() -> str | bool:
    """Returns this machine's authorities (``SSL_CERT_FILE`` names others), or those of ``requests`` if it has none."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or True


def _reason(error: Exception) -> Reason:
    if isinstance(error, TIMEOUTS):
        return "too_slow"
    if isinstance(error, urllib3.exceptions.ProtocolError):
        return "truncated"
    return "unreachable"
