"""Limits that count failures only: wrong passwords of one account, and of everyone together.

Reading a count before a guess and adding to it afterwards would let through any number of concurrent guesses. So an
attempt is counted first, and the count undone unless it fails:

    with attempt(("auth.account", email), ("auth.all", ""), failing=InvalidCredentials, now=now):
        ...

A limit's window begins with its first attempt. A count of a killed process expires with the window.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from hashlib import sha256

from django.core.cache import caches

from config.platform.edge.ratelimits.cache import CounterCache
from config.platform.edge.ratelimits.limits import RateLimited
from config.platform.edge.ratelimits.table import FailureLimit, allowance

# Called with each failure; composition registers them.
failures: list[Callable[[], object]] = []


@contextmanager
def attempt(
    *limits: tuple[FailureLimit, str], failing: type[Exception], now: datetime
) -> Iterator[None]:
    """Counts against every limit (a name and a key) only if its body raises ``failing``.

    Raises ``RateLimited`` where failures and running attempts have exhausted a limit.
    """
    with ExitStack() as counted:
        for name, key in limits:
            counted.enter_context(_counted(name, key, failing=failing, now=now))
        try:
            yield
        except failing:
            for note in failures:
                note()
            raise


@contextmanager
def _counted(
    name: FailureLimit, key: str, *, failing: type[Exception], now: datetime
) -> Iterator[None]:
    counters = caches["default"]
    assert isinstance(counters, CounterCache)
    allowed, seconds = allowance(name)
    # A hash, so that no email address reaches the cache.
    hidden = f"failed:{sha256(f'{name}:{key}'.encode()).hexdigest()}"
    if milliseconds := counters.take(hidden, limit=allowed, seconds=seconds):
        raise RateLimited(now=now, until=now + timedelta(milliseconds=milliseconds))
    failed = False
    try:
        yield
    except failing:
        failed = True
        raise
    finally:
        if not failed:
            counters.give_back(hidden)
