"""One request, sent again where that is safe, and its answer in parts."""

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
    """One task sends and reads the head and the first bytes, its consumer reads on.

    Any may cut it, and ask how far its current attempt has come.
    """

    def __init__(
        self, client: Client, limits: Limits, request: tuple[str, str, Mapping[str, str], bytes]
    ) -> None:
        self._client, self._limits, self._request = client, limits, request
        self._is_cut = False
        self._response: Response | None = None
        self._body = Body(chunked=False, length=0)
        self._size = 0
        # Whether the consumer reads, and whether the pool has the connection.
        self._has_begun = self._is_given_back = False
        # A thread that closes must not meet one that gives back: the connection may be of another exchange then.
        self._ending = Lock()
        # Seconds since the last bytes.
        self._silence = 0.0
        self.attempt = Attempt(limits, is_first=True)

    def cut(self) -> None:
        """Sends nothing any more; ``attempt.sent`` is final afterwards."""
        self._is_cut = self.attempt.is_cut = True

    def head(self) -> Head:
        """Sends the request and returns the head of its answer. Raises what ``failure_of`` translates."""
        self._response = response = self._answer(prepared(*self._request))
        self.attempt.has_head = True
        return Head(response.status_code, response.headers)

    def first(self) -> bytes:
        """The beginning of the body, b"" for none."""
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
            # The file has what came together with the head, and is empty from then on.
            piece = self._decoded(attempt.answer.fp.read1(READ_BYTES))
        self._has_begun = True
        return piece or self._end()

    def give_up(self) -> None:
        """Closes the connection of a task that ends early."""
        self._has_begun = True
        self.close()

    def more(self, now: float, until: float) -> bytes | None:
        """The next bytes of the body, b"" at its end, None where none come until then."""
        while not self._body.ended:
            seconds, left = max(0.0, until - now), self._limits.read_timeout - self._silence
            sock = self.attempt.sock
            assert sock is not None
            # 0 asks for what is there already.
            sock.settimeout(min(seconds, max(MOMENT, left)))
            try:
                data = sock.recv(READ_BYTES)
            except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
                self._silence += seconds
                if seconds >= left:
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
        """Closes the connection, unless it was given back. A reader that waits for bytes gets an error, or an end."""
        with self._ending:
            if self._response is None or self._is_given_back:
                return
            with suppress(OSError):
                if self.attempt.sock is not None:
                    self.attempt.sock.shutdown(SHUT_RDWR)
            # Until then the task is reading, and closes it.
            if self._has_begun:
                self._response.raw.close()

    def _decoded(self, data: bytes) -> bytes:
        piece = self._body.decode(data)
        self._size += len(piece)
        if self._size > self._limits.max_bytes:
            raise self._too_large()
        return piece

    def _end(self) -> bytes:
        """Gives the connection back to its pool, unless the server has sent more than its answer."""
        attempt, response = self.attempt, self._response
        assert response is not None
        if self._body.is_followed:
            self.close()
            return b""
        with self._ending:
            if not self._is_given_back and not self._is_cut and attempt.answer is not None:
                self._is_given_back = True
                # Read to its end, though not by itself.
                attempt.answer.close()
                if attempt.connection is not None:
                    attempt.connection.idle_since = time.monotonic()
                response.raw.release_conn()
        return b""

    def failure_of(self, error: Exception) -> ExchangeError:
        """Translates an error to a failure, whose text names the root cause only."""
        if isinstance(error, ExchangeError):
            return error.copy()
        root, attempt = root_of(error), self.attempt
        cause, is_slow = type(root).__name__, isinstance(root, TimeoutError)
        if self._limits.left() <= 0:
            return self._late()
        if not attempt.connected:
            reason = "too_slow" if is_slow else "unreachable"
            return Unreachable(f"no connection to the server ({cause})", sent=False, reason=reason)
        if is_slow:
            return TimedOut("the server is silent", sent=attempt.sent)
        reason = "truncated" if attempt.has_head else "unreachable"
        return Broken(f"the connection broke ({cause})", sent=attempt.sent, reason=reason)

    def _answer(self, request: PreparedRequest) -> Response:
        """The first answer that is not retried; raises the failure of the last attempt."""
        limits = self._limits
        if limits.left() <= 0:
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
