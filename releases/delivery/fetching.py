"""Fetches files of the CDN and documents of an issuer: streamed, and bounded in size and time."""

from collections.abc import Iterator
from contextlib import contextmanager

from config.api.problems import Fault
from config.http.one_answer import Answer, NoAnswer, exchange

SILENCE_SECONDS = 10.0
HEADERS = {"User-Agent": "shell-release-check"}
DETAILS = {
    "too_slow": "The transfer took longer than a publish may take.",
    "truncated": "The transfer ended early.",
    "unreachable": "The CDN did not answer or broke off; check that the file exists.",
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

    def __init__(self, answer: Answer) -> None:
        self.cache_control = answer.headers.get("Cache-Control", "")
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        is_empty = True
        for chunk in self._answer:
            is_empty = False
            yield chunk
        if is_empty:
            raise FetchRefused("empty", "The file is empty.")


@contextmanager
def fetch(url: str, *, limit: int, deadline: float) -> Iterator[Fetched]:
    """Yields the file of one GET, and closes it.

    ``limit`` in bytes, ``deadline`` on the monotonic clock. Raises ``FetchRefused``, also during reading.
    """
    with _answer("GET", url, limit=limit, deadline=deadline) as answer:
        _refuse_other_answers(answer)
        yield Fetched(answer)


def status_of(method: str, url: str, *, deadline: float) -> int:
    """Sends a request and returns the answer's status without its body. Raises ``FetchRefused``."""
    with _answer(method, url, limit=0, deadline=deadline) as answer:
        return answer.status


@contextmanager
def _answer(method: str, url: str, *, limit: int, deadline: float) -> Iterator[Answer]:
    try:
        with exchange(
            method, url, headers=HEADERS, limit=limit, silence=SILENCE_SECONDS, deadline=deadline
        ) as answer:
            yield answer
    except NoAnswer as error:
        too_large = f"An artifact has at most {limit // 2**20} MiB."
        raise FetchRefused(error.reason, DETAILS.get(error.reason, too_large)) from None


def _refuse_other_answers(answer: Answer) -> None:
    if 300 <= answer.status < 400:
        raise FetchRefused("redirected", "The CDN redirects; serve the file at its address.")
    if answer.status in {403, 404, 410}:
        raise FetchRefused(
            "not_found",
            f"The CDN answers {answer.status}: upload the file before publishing.",
        )
    if answer.status != 200:
        raise FetchRefused("unreachable", f"The CDN answers {answer.status}.")
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise FetchRefused(
            "encoded", "The CDN applies a content encoding to the file; switch that off."
        )
