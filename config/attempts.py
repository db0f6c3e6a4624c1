"""Limits that count failures only: wrong passwords of one account, and of everyone together.

Looking first and counting afterwards would let as many through at once as come at the same moment. So an attempt
takes its place among the failures that are left before anything is tried, and gives it back unless it fails:

    with attempt(("auth.account", email), ("auth.all", ""), failing=InvalidCredentials, now=now):
        ...

Where all places that are left are taken by attempts under way, it waits for those to end: they may well succeed,
and many people who sign in at once must not be refused for it. A limit's time begins with its first failure.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from secrets import token_hex
from time import monotonic, sleep

from django.core.cache import caches

from config.api.problems import ServiceUnavailable
from config.counting import ProcessCounters
from config.off_loop import WAIT_SECONDS
from config.ratelimits import RateLimited, parts_of, rate_of
from config.rates import FailureLimit
from config.tallies import BUSY, HELD

FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.16


@contextmanager
def attempt(
    *limits: tuple[FailureLimit, str], failing: type[Exception], now: datetime
) -> Iterator[None]:
    """What is done inside counts against every limit (a name and a key) if it raises ``failing``, and else not.

    Raises ``RateLimited`` where a limit is used up, and ``ServiceUnavailable`` where attempts under way have left
    no place for longer than the gate of slow hashes would have made it wait.
    """
    with ExitStack() as places:
        taken = [places.enter_context(_place(name, key, now=now)) for name, key in limits]
        try:
            yield
        except failing:
            for place in taken:
                place.failed = True
            raise


@dataclass(slots=True)
class _Place:
    failed: bool = False


@contextmanager
def _place(name: FailureLimit, key: str, *, now: datetime) -> Iterator[_Place]:
    counters = caches["default"]
    assert isinstance(counters, ProcessCounters)
    allowed, seconds = parts_of(rate_of(name))
    # A hash, so that no email address reaches the cache.
    hidden, holder = f"failed:{sha256(f'{name}:{key}'.encode()).hexdigest()}", token_hex(8)
    _take(counters, hidden, holder, allowed=allowed, now=now)
    place = _Place()
    try:
        yield place
    finally:
        counters.settle(hidden, holder, failed_for=seconds if place.failed else 0)


def _take(counters: ProcessCounters, key: str, holder: str, *, allowed: int, now: datetime) -> None:
    deadline, waited, pause = monotonic() + WAIT_SECONDS, 0.0, FIRST_PAUSE
    while (answer := counters.hold(key, holder, limit=allowed)) != HELD:
        if answer != BUSY:
            raise RateLimited(now=now, until=now + timedelta(seconds=waited, milliseconds=answer))
        if monotonic() > deadline:
            raise ServiceUnavailable(
                "Many people are signing in just now. Please try again in a moment.", retry_after=2
            )
        sleep(pause)
        waited, pause = waited + pause, min(2 * pause, LONGEST_PAUSE)
