"""Decides on retries: only before the first byte of an answer, and only where they cannot be charged twice."""

import re
import ssl
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from math import ceil
from random import uniform

from config.platform.http.client import Attempt

MOST_ATTEMPTS = 3
# Seconds before the second attempt, doubled before the third; each wait varies by up to half.
FIRST_WAIT = 0.25
# Statuses of a provider that did no work. A 429 may also mean an account without credit, so it needs a Retry-After.
TOO_MANY = 429
NOT_NOW = frozenset({TOO_MANY, 503, 529})
# Longer waits are passed to the caller as Retry-After.
MOST_WAIT = 2
# A server may close an idle connection while a request is in transit. A reused connection that ends sooner than this,
# without a byte, was closed before the request arrived; a provider that fails later may have processed it.
STALE_SECONDS = 0.1
# A longer number is not a valid wait.
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{0,9})?(?: ?s)?", re.ASCII)


class Retries:
    """The attempts at one request; none begins after ``until``, on the monotonic clock.

    Where the call has another route (``has_next``), only a stale connection is retried.
    """

    def __init__(self, *, until: float, has_next: bool = False) -> None:
        self._until = until
        self._has_next = has_next
        self._made = 1

    def wait_after_failure(self, error: BaseException, attempt: Attempt) -> float | None:
        """Returns the seconds until the next attempt after a failed connection; None for no retry."""
        cause = root_of(error)
        if not isinstance(cause, OSError) or isinstance(cause, TimeoutError | ssl.SSLError):
            return None
        is_stale = (
            attempt.is_reused
            and not attempt.answered
            and time.monotonic() - attempt.sent_at < STALE_SECONDS
        )
        is_lost = not attempt.sent and not self._has_next
        return self._wait() if is_stale or is_lost else None

    def wait_after_refusal(self, status: int, headers: Mapping[str, str]) -> float | None:
        """Returns the seconds until the next attempt after an answer; None if the answer is final."""
        if self._has_next or status not in NOT_NOW or headers.get("x-should-retry") == "false":
            return None
        if "Retry-After" not in headers:
            return None if status == TOO_MANY else self._wait()
        after = retry_after(headers)
        return None if after is None or after > MOST_WAIT else self._wait(after)

    def _wait(self, requested: int = 0) -> float | None:
        spread = uniform(0.5, 1.5)  # nosec B311 # noqa: S311 - nothing secret
        wait: float = requested + FIRST_WAIT * 2 ** (self._made - 1) * spread
        if self._made >= MOST_ATTEMPTS or time.monotonic() + wait > self._until:
            return None
        self._made += 1
        return wait


def retry_after(headers: Mapping[str, str]) -> int | None:
    """Returns the seconds of a ``Retry-After``, rounded up; None if missing or invalid.

    Servers send a number, some with a fraction or a unit, or a date: in HTTP's format, in that of mail with a time
    zone, or in ISO 8601.
    """
    value = headers.get("Retry-After", "").strip()
    if _SECONDS.fullmatch(value):
        wait = float(value.rstrip("s "))
    elif (at := _moment(value)) is not None:
        wait = at - time.time()
    else:
        return None
    return max(0, ceil(wait))


def _moment(written: str) -> float | None:
    """Returns a date as seconds since 1970. One without a time zone is in UTC, as in HTTP."""
    for parsed in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            at = parsed(written)
        except ValueError:
            continue
        try:
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return None


def root_of(error: BaseException) -> BaseException:
    """Returns the root cause of an error, or the first HTTP error in its chain, which is more precise."""
    while not isinstance(error, HTTPException) and (cause := error.__cause__ or error.__context__):
        error = cause
    return error
