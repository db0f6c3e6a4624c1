"""Fetches files of the CDN and documents of an issuer: streamed, and bounded in size and time."""

from collections.abc import Iterator
from contextlib import contextmanager

from config.platform.http.errors import ExchangeError
from config.platform.http.exchange import Exchange, exchange_once
from config.platform.http.transfer import Head
from config.platform.problems.problem import Fault

SILENCE_SECONDS = 10.0
HEADERS = {"User-Agent": "shell-release-check"}
DETAILS = {
    "too_slow": "The transfer took longer than a publish may take.",
    "truncated": "The transfer ended early.",
    "unreachable": "The CDN did not answer, or the transfer broke off; check that the file exists.",
}


class FetchRefused(Exception):
    """A failed fetch, with a code and a sentence."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(code)

    def at(self, pointer: str) -> Fault:
        return Fault(pointer, self.code, self.detail)


class Fetched:
    """A file in transfer; iterating yields its bytes."""

    def __init__(self, exchange: Exchange) -> None:
        self.cache_control = exchange.await_head().headers.get("Cache-Control", "")
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        is_empty = True
        for chunk in self._exchange:
            is_empty = is_empty and not chunk
            yield chunk
        if is_empty:
            raise FetchRefused("empty", "The file is empty.")


@contextmanager
def fetch(url: str, *, limit: int, deadline: float) -> Iterator[Fetched]:
    """Yields the file of one GET, and closes it.

    ``limit`` in bytes, ``deadline`` on the monotonic clock. Raises ``FetchRefused``, also during reading.
    """
    with _asking("GET", url, limit=limit, deadline=deadline) as exchange:
        _refuse_other_answers(exchange.await_head())
        yield Fetched(exchange)


def status_of(method: str, url: str, *, deadline: float) -> int:
    """Sends a request and returns the answer's status without its body. Raises ``FetchRefused``."""
    with _asking(method, url, limit=0, deadline=deadline) as exchange:
        return exchange.await_head().status


@contextmanager
def _asking(method: str, url: str, *, limit: int, deadline: float) -> Iterator[Exchange]:
    try:
        with exchange_once(
            method, url, headers=HEADERS, limit=limit, silence=SILENCE_SECONDS, deadline=deadline
        ) as exchange:
            yield exchange
    except ExchangeError as error:
        too_large = f"An artifact can be at most {limit // 2**20} MiB."
        raise FetchRefused(error.reason, DETAILS.get(error.reason, too_large)) from None


def _refuse_other_answers(answer: Head) -> None:
    if 300 <= answer.status < 400:
        raise FetchRefused(
            "redirected", "The CDN redirects; serve the file at this address itself."
        )
    if answer.status in {403, 404, 410}:
        raise FetchRefused(
            "not_found", f"The CDN answers {answer.status}: upload the file before publishing."
        )
    if answer.status != 200:
        raise FetchRefused("unreachable", f"The CDN answers {answer.status}.")
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise FetchRefused(
            "encoded", "The CDN applies a content encoding to the file; switch that off."
        )
