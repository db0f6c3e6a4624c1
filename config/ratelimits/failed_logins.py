"""Limits that count failures only: wrong passwords of one account, and of everyone together.

Reading a count before a guess and adding to it afterwards would let through any number of concurrent guesses. So an
attempt takes one of the remaining failures first, and gives it back unless it fails:

    with attempt(("auth.account", email), ("auth.all", ""), failing=InvalidCredentials, now=now):
        ...

While running attempts hold all remaining failures, an attempt waits for them: they may succeed, and many people
may sign in at once. A limit's window begins with its first failure.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from secrets import token_hex
from time import monotonic, sleep

from django.core.cache import caches

from config.api.problems import ServiceUnavailable
from config.ratelimits.cache import CounterCache
from config.ratelimits.limits import RateLimited
from config.ratelimits.redis_counters import BUSY, STARTED
from config.ratelimits.table import FailureLimit, allowance

# The same as a sign-in waits for its password to be hashed.
WAIT_SECONDS = 2.0
FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.16


@contextmanager
def attempt(
    *limits: tuple[FailureLimit, str], failing: type[Exception], now: datetime
) -> Iterator[None]:
    """Counts against every limit (a name and a key) if its body raises ``failing``, and else not at all.

    Raises ``RateLimited`` where a limit is used up, and ``ServiceUnavailable`` where running attempts have left no
    place for longer than ``WAIT_SECONDS``.
    """
    with ExitStack() as places:
        for name, key in limits:
            places.enter_context(_place(name, key, failing=failing, now=now))
        yield


@contextmanager
def _place(
    name: FailureLimit, key: str, *, failing: type[Exception], now: datetime
) -> Iterator[None]:
    counters = caches["default"]
    assert isinstance(counters, CounterCache)
    allowed, seconds = allowance(name)
    # A hash, so that no email address reaches the cache.
    hidden, holder = f"failed:{sha256(f'{name}:{key}'.encode()).hexdigest()}", token_hex(8)
    _take(counters, hidden, holder, allowed=allowed, now=now)
    failed_for = 0
    try:
        yield
    except failing:
        failed_for = seconds
        raise
    finally:
        counters.end_attempt(hidden, holder, failed_for=failed_for)


def _take(counters: CounterCache, key: str, holder: str, *, allowed: int, now: datetime) -> None:
    deadline, waited, pause = monotonic() + WAIT_SECONDS, 0.0, FIRST_PAUSE
    while (answer := counters.begin_attempt(key, holder, limit=allowed)) != STARTED:
        if answer != BUSY:
            raise RateLimited(now=now, until=now + timedelta(seconds=waited, milliseconds=answer))
        if monotonic() > deadline:
            raise ServiceUnavailable(
                "Many people are signing in just now. Please try again in a moment.", retry_after=2
            )
        sleep(pause)
        waited, pause = waited + pause, min(2 * pause, LONGEST_PAUSE)
