"""When a request to a provider is sent again: before its first byte, and only where nobody can be charged twice."""

import ssl
import time
from collections.abc import Mapping
from http.client import HTTPException
from random import uniform

from llmproxy.heads import retry_after
from llmproxy.sockets import Line

MOST_TRIES = 3
# Seconds before the second try; twice as long before the third, half more or less each time.
FIRST_WAIT = 0.25
# The provider says that it has not begun; the first of them is only believed with a time to come back at,
# because it also means an account without money.
TOO_MANY = 429
NOT_NOW = frozenset({TOO_MANY, 503, 529})
# A caller can wait for longer times by itself, and is told how long.
MOST_WAIT = 2
# A server may close an idle connection at the moment at which it is used again. What ends sooner than this,
# without a byte, was closed before the request came; a provider that failed later may have been at work.
STALE_SECONDS = 0.1


class Tries:
    """The tries of one request. ``until`` is on the monotonic clock: after it none is begun."""

    def __init__(self, *, until: float) -> None:
        self._until = until
        self._done = 1

    def wait_after_failure(self, error: BaseException, line: Line) -> float | None:
        """Seconds until the next try after the connection failed; None where there is none."""
        cause = root_of(error)
        if not isinstance(cause, OSError) or isinstance(cause, TimeoutError | ssl.SSLError):
            return None
        is_stale = line.is_reused and not line.heard and line.lasted() < STALE_SECONDS
        return self._wait() if is_stale or not line.sent else None

    def wait_after_refusal(self, status: int, headers: Mapping[str, str]) -> float | None:
        """Seconds until the next try after such an answer; None where it stands."""
        if status not in NOT_NOW or headers.get("x-should-retry") == "false":
            return None
        if "Retry-After" not in headers:
            return None if status == TOO_MANY else self._wait()
        after = retry_after(headers)
        return None if after is None or after > MOST_WAIT else self._wait(after)

    def _wait(self, told: int = 0) -> float | None:
        spread = uniform(0.5, 1.5)  # noqa: S311 - nothing secret
        wait: float = told + FIRST_WAIT * 2 ** (self._done - 1) * spread
        if self._done >= MOST_TRIES or time.monotonic() + wait > self._until:
            return None
        self._done += 1
        return wait


def root_of(error: BaseException) -> BaseException:
    """What went wrong first; where that is a fault of HTTP, it says more than what it came from."""
    while not isinstance(error, HTTPException) and (cause := error.__cause__ or error.__context__):
        error = cause
    return error
