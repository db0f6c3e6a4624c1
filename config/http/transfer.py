"""One request, sent again where that is safe, and its answer in parts."""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import NamedTuple

from requests import PreparedRequest, Response

from config.http.client import Abandoned, Attempt, Client, Limits, prepared
from config.http.errors import Broken, ExchangeError, TimedOut, TooLarge, Unreachable
from config.http.retries import Retries, root_of

READ_BYTES = 16 * 1024
LATE = "the deadline has passed"


class Head(NamedTuple):
    """Status and headers of an answer; header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]


class Transfer:
    """Runs in one task; any other may cut it and ask how far its current attempt has come."""

    def __init__(
        self, client: Client, limits: Limits, request: tuple[str, str, Mapping[str, str], bytes]
    ) -> None:
        self._client, self._limits, self._request = client, limits, request
        self._is_cut = False
        self.attempt = Attempt(limits, is_first=True)

    def cut(self) -> None:
        """Sends nothing any more; ``attempt.sent`` is final afterwards."""
        self._is_cut = self.attempt.is_cut = True

    def parts(self) -> Generator[Head | bytes]:
        """The head of the answer and the pieces of its body. Raises what ``failure_of`` translates."""
        response = self._answer(prepared(*self._request))
        with closing(response.raw):
            self.attempt.has_head = True
            yield Head(response.status_code, response.headers)
            yield from self._body(response)

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

    def _body(self, response: Response) -> Generator[bytes]:
        """Yields the pieces of a body, and gives the connection back to its pool at the end."""
        attempt, limits, size = self.attempt, self._limits, 0
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if coding != "identity" and not limits.decodes:
            raise Broken("the answer has an encoding that the request excludes", sent=True)
        too_large = f"the answer is over {limits.max_bytes} bytes"
        if (response.raw.length_remaining or 0) > limits.max_bytes:
            raise TooLarge(too_large, sent=True)
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
                raise TooLarge(too_large, sent=True)
            yield piece
            if self._is_cut or limits.left() <= 0:  # only in a plain thread, which cannot be killed
                raise self._late()
        if attempt.connection is not None:
            attempt.connection.idle_since = time.monotonic()
        response.raw.release_conn()

    def _late(self) -> ExchangeError:
        return TimedOut(LATE, sent=self.attempt.sent)
