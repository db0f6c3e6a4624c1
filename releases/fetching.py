"""Reading a file from the CDN, or what it says: streamed, without redirects, with an end to how much and how long.

Whatever a server does, the call ends in time: each silence has a limit, and so has everything together.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse, IncompleteRead
from urllib.parse import urlsplit

from config.api.problems import Fault
from config.deadlines import connected, seconds_left, target

SILENCE_SECONDS = 10.0
CHUNK_BYTES = 256 * 1024
HEADERS = {"Accept-Encoding": "identity", "User-Agent": "shell-release-check"}


class FetchRefused(Exception):
    """Why a file could not be read: a word to grep for, and a sentence."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(code)

    def at(self, pointer: str) -> Fault:
        return Fault(pointer, self.code, self.detail)


class Fetched:
    """One file on its way. Iterating gives its bytes; ``cache_control`` is what the server said."""

    def __init__(self, response: HTTPResponse, *, limit: int, deadline: float) -> None:
        self.cache_control = response.getheader("Cache-Control") or ""
        self._response = response
        self._limit = limit
        self._deadline = deadline

    def __iter__(self) -> Iterator[bytes]:
        expected, seen = self._response.length, 0
        if expected is not None and expected > self._limit:
            raise _too_large(self._limit)
        while chunk := self._response.read1(CHUNK_BYTES):
            seen += len(chunk)
            if seen > self._limit:
                raise _too_large(self._limit)
            if time.monotonic() > self._deadline:
                break
            yield chunk
        if time.monotonic() > self._deadline:
            raise _too_slow()
        if expected is not None and seen < expected:
            raise FetchRefused("truncated", f"It ended after {seen:,} of {expected:,} bytes.")
        if not seen:
            raise FetchRefused("empty", "The file is empty.")


@contextmanager
def fetch(url: str, *, limit: int, deadline: float) -> Iterator[Fetched]:
    """Yields the answer of one GET, and closes it.

    ``limit`` in bytes, ``deadline`` on the monotonic clock. Raises ``FetchRefused``, also while it is read.
    """
    with _answer("GET", url, deadline=deadline) as response:
        _refuse_other_answers(response)
        yield Fetched(response, limit=limit, deadline=deadline)


def status_of(method: str, url: str, *, deadline: float) -> int:
    """The status of what another method is answered with, whose body nobody reads. Raises ``FetchRefused``."""
    with _answer(method, url, deadline=deadline) as response:
        return response.status


@contextmanager
def _answer(method: str, url: str, *, deadline: float) -> Iterator[HTTPResponse]:
    address = urlsplit(url)
    try:
        with connected(address, silence=SILENCE_SECONDS, deadline=deadline) as connection:
            connection.request(method, target(address), headers=HEADERS)
            with connection.getresponse() as response:
                # A head that was cut off looks like one that has ended.
                seconds_left(deadline)
                yield response
    except (OSError, HTTPException) as error:
        if time.monotonic() > deadline or isinstance(error, TimeoutError):
            raise _too_slow() from error
        if isinstance(error, IncompleteRead):
            raise FetchRefused("truncated", "It ended before its end.") from error
        raise FetchRefused(
            "unreachable", "The CDN did not answer, or broke off; see that the file is there."
        ) from error


def _refuse_other_answers(response: HTTPResponse) -> None:
    if 300 <= response.status < 400:
        raise FetchRefused("redirected", "The CDN redirects; an artifact is served where it lies.")
    if response.status in {403, 404, 410}:
        raise FetchRefused(
            "not_found",
            f"There is no file (the CDN answers {response.status}); upload it before publishing.",
        )
    if response.status != 200:
        raise FetchRefused("unreachable", f"The CDN answers {response.status}.")
    if response.getheader("Content-Encoding", "identity").lower() != "identity":
        raise FetchRefused(
            "encoded", "The CDN changes the file's bytes by a content encoding; switch that off."
        )


def _too_large(limit: int) -> FetchRefused:
    return FetchRefused("too_large", f"An artifact has at most {limit // 2**20} MiB.")


def _too_slow() -> FetchRefused:
    return FetchRefused("too_slow", "It could not be read within the time that a publish has.")
