"""Sends one request, retried where that is safe, and reads its answer in parts."""

import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from socket import SHUT_RDWR
from threading import Lock
from typing import NamedTuple

from requests import PreparedRequest, Response

from config.platform.http.body import Body
from config.platform.http.client import Abandoned, Attempt, Client, Limits, prepared
from config.platform.http.errors import Broken, ExchangeError, TimedOut, TooLarge, Unreachable
from config.platform.http.retries import Retries, root_of

READ_BYTES = 16 * 1024
# The shortest wait at the end of the provider's time.
MOMENT = 0.001
LATE = "the deadline has passed"


class Head(NamedTuple):
    """Status and headers of an answer; header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]


class Transfer:
    """A transfer that a task begins and its consumer finishes: the task sends, and reads the head and the first bytes.

    Any thread may cut it, and look at the progress of its current attempt.
    """

    def __init__(
        self, client: Client, limits: Limits, request: tuple[str, str, Mapping[str, str], bytes]
    ) -> None:
        self._client, self._limits, self._request = client, limits, request
        self._is_cut = False
        self._response: Response | None = None
        self._body = Body(chunked=False, length=0)
        self._size = 0
        # Set once the consumer reads, and once the pool has the connection back.
        self._has_begun = self._is_returned = False
        # Closing and returning to the pool exclude each other: a returned connection may belong to another exchange.
        self._ending = Lock()
        # Seconds since the last bytes.
        self._silence = 0.0
        self.attempt = Attempt(limits, is_first=True)

    def cut(self) -> None:
        """Stops all sending; ``attempt.sent`` is final afterwards."""
        self._is_cut = self.attempt.is_cut = True

    def head(self) -> Head:
        """Sends the request and returns the head of its answer. Raises what ``failure_of`` translates."""
        self._response = response = self._answer(prepared(*self._request))
        self.attempt.has_head = True
        return Head(response.status_code, response.headers)

    def first(self) -> bytes:
        """Returns the beginning of the body, b"" for an empty one."""
        response, limits, attempt = self._response, self._limits, self.attempt
        assert response is not None
        assert attempt.answer is not None
        raw = response.raw
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if coding != "identity" and not limits.decodes:
            raise Broken("the answer has an encoding that the request excludes", sent=True)
        if (raw.length_remaining or 0) > limits.max_bytes:
            raise self._too_large()
        self._body = Body(chunked=raw.chunked, length=raw.length_remaining)
        piece = b""
        while not piece and not self._body.ended:
            # The buffer has the bytes that arrived together with the head, and is empty afterwards.
            piece = self._decoded(attempt.answer.fp.read1(READ_BYTES))
        self._has_begun = True
        return piece or self._end()

    def give_up(self) -> None:
        """Closes the connection of a task that ends early."""
        self._has_begun = True
        self.close()

    def more(self, now: float, until: float) -> bytes | None:
        """Returns the next bytes of the body, b"" at its end, None where none arrive before ``until``."""
        while not self._body.ended:
            seconds, remaining = max(0.0, until - now), self._limits.read_timeout - self._silence
            sock = self.attempt.sock
            assert sock is not None
            # 0 asks for what is there already.
            sock.settimeout(min(seconds, max(MOMENT, remaining)))
            try:
                data = sock.recv(READ_BYTES)
            except (TimeoutError, BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self._silence += seconds
                if seconds >= remaining:
                    raise TimeoutError from None
                return None
            if self._is_cut:
                raise Abandoned
            self._silence = 0.0
            if piece := self._decoded(data):
                return piece
            now = time.monotonic()
            if now >= until and not self._body.ended:
                return None
        return self._end()

    def close(self) -> None:
        """Closes the connection unless it was returned. A waiting reader gets an error, or the end of the body."""
        with self._ending:
            if self._response is None or self._is_returned:
                return
            with suppress(OSError):
                if self.attempt.sock is not None:
                    self.attempt.sock.shutdown(SHUT_RDWR)
            # Before that the task reads, and closes the connection itself.
            if self._has_begun:
                self._response.raw.close()

    def _decoded(self, data: bytes) -> bytes:
        piece = self._body.decode(data)
        self._size += len(piece)
        if self._size > self._limits.max_bytes:
            raise self._too_large()
        return piece

    def _end(self) -> bytes:
        """Returns the connection to its pool, unless the server sent more than its answer."""
        attempt, response = self.attempt, self._response
        assert response is not None
        if self._body.is_followed:
            self.close()
            return b""
        with self._ending:
            if not self._is_returned and not self._is_cut and attempt.answer is not None:
                self._is_returned = True
                # The answer was read to its end, though not through this object.
                attempt.answer.close()
                if attempt.connection is not None:
                    attempt.connection.idle_since = time.monotonic()
                response.raw.release_conn()
        return b""

    def failure_of(self, error: Exception) -> ExchangeError:
        """Translates an error to a failure whose text names only the root cause."""
        if isinstance(error, ExchangeError):
            return error.copy()
        root, attempt = root_of(error), self.attempt
        cause, is_slow = type(root).__name__, isinstance(root, TimeoutError)
        if self._limits.remaining() <= 0:
            return self._late()
        if not attempt.connected:
            reason = "too_slow" if is_slow else "unreachable"
            return Unreachable(f"no connection to the server ({cause})", sent=False, reason=reason)
        if is_slow:
            return TimedOut("the server is silent", sent=attempt.sent)
        reason = "truncated" if attempt.has_head else "unreachable"
        return Broken(f"the connection broke ({cause})", sent=attempt.sent, reason=reason)

    def _answer(self, request: PreparedRequest) -> Response:
        """Returns the first answer that is not retried; raises the failure of the last attempt."""
        limits = self._limits
        if limits.remaining() <= 0:
            raise self._late()
        retries = Retries(until=limits.retry_until, has_next=limits.has_next)
        while True:
            try:
                response = self._client.ask(request, self.attempt)
            except Exception as error:
                wait = retries.wait_after_failure(error, self.attempt)
                if wait is None:
                    raise
            else:
                wait = retries.wait_after_refusal(response.status_code, response.headers)
                if wait is None:
                    return response
                response.raw.close()
            self.attempt = Attempt(limits, is_first=False)
            time.sleep(wait)
            if self._is_cut:
                raise Abandoned

    def _too_large(self) -> ExchangeError:
        return TooLarge(f"the answer is over {self._limits.max_bytes} bytes", sent=True)

    def _late(self) -> ExchangeError:
        return TimedOut(LATE, sent=self.attempt.sent)
