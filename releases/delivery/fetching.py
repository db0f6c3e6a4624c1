"""Reads files from the CDN and documents of an issuer: streamed, bounded in size and time, each refusal with a word."""

from collections.abc import Iterator
from contextlib import contextmanager

from config.api.problems import Fault
from config.http import Answer, NoAnswer, exchange

SILENCE_SECONDS = 10.0
HEADERS = {"User-Agent": "shell-release-check"}
DETAILS = {
    "too_slow": "It could not be read within the time that a publish has.",
    "truncated": "It ended before its end.",
    "unreachable": "The CDN did not answer, or broke off; see that the file is there.",
}


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
    """Yields the answer of one GET, and closes it.

    ``limit`` in bytes, ``deadline`` on the monotonic clock. Raises ``FetchRefused``, also while it is read.
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
        raise FetchRefused("redirected", "The CDN redirects; an artifact is served where it lies.")
    if answer.status in {403, 404, 410}:
        raise FetchRefused(
            "not_found",
            f"There is no file (the CDN answers {answer.status}); upload it before publishing.",
        )
    if answer.status != 200:
        raise FetchRefused("unreachable", f"The CDN answers {answer.status}.")
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise FetchRefused(
            "encoded", "The CDN changes the file's bytes by a content encoding; switch that off."
        )
