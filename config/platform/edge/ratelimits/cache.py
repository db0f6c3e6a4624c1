"""A Django cache of counters: in Redis at ``LOCATION``, and in this process without Redis or while it is unavailable.

django-ratelimit counts by ``add(key, 1, timeout)`` and, for a key that exists already, ``incr(key)``. Here ``add``
increments and sets the expiry in one atomic step, and the next ``incr`` of the same thread returns that result, so
that a count is one round trip. django-ratelimit reads by ``add(key, 0, timeout)`` and ``get(key)``, likewise. The
cache therefore holds only whole numbers.

Counts that this process made while Redis was unavailable stay in this process afterwards.
"""

import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache

from config.platform.edge.ratelimits.process_counters import ProcessCounters
from config.platform.edge.ratelimits.redis_counters import Away, RedisCounters

T = TypeVar("T")
# Has the prefix of the limits' keys, so that a Redis user with access to those has access to this.
PROBE = "rl:{health}"
Counters = ProcessCounters | RedisCounters


class CounterCache(BaseCache):
    """Django's cache interface over counters, and the two operations of ``failed_logins.py``."""

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        self._redis = _redis(location) if location else None

    def answers(self) -> bool | None:
        """Returns whether Redis counts; ``None`` where none is configured."""
        return self._redis.answers(self.make_key(PROBE)) if self._redis else None

    def add(
        self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        """Counts ``value`` and returns whether the key is new. A value of 0 only reads."""
        full_key, seconds = self.make_key(key, version), self._seconds(timeout)
        if type(value) is not int:
            raise TypeError("This cache counts: it holds whole numbers and nothing else.")
        if seconds is not None and seconds <= 0:
            raise ValueError("A count needs some time to live.")
        if value == 0:
            number = self._run(lambda counters: counters.read(full_key))
        else:
            number = self._run(lambda counters: counters.increment(full_key, value, seconds))
        _thread.last_add = full_key, value, number
        return number is None if value == 0 else number == value

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        full_key = self.make_key(key, version)
        number = _result_of_add(full_key, delta)
        if number is not None:
            return number
        if self._run(lambda counters: counters.read(full_key)) is None:
            raise ValueError("There is no such key.")
        seconds = self._seconds(DEFAULT_TIMEOUT)
        return self._run(lambda counters: counters.increment(full_key, delta, seconds))

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        full_key = self.make_key(key, version)
        number = _result_of_add(full_key, 0)
        if number is None:
            number = self._run(lambda counters: counters.read(full_key))
        return default if number is None else number

    def get_many(self, keys: Iterable[str], version: int | None = None) -> dict[str, int]:
        """Returns the numbers of those keys that there are, in one round trip."""
        full_keys = {self.make_key(key, version): key for key in keys}
        if not full_keys:
            return {}
        numbers = self._run(lambda counters: counters.read_many([*full_keys]))
        return {
            key: number
            for key, number in zip(full_keys.values(), numbers, strict=True)
            if number is not None
        }

    def set(
        self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        full_key, seconds = self.make_key(key, version), self._seconds(timeout)
        self._run(lambda counters: counters.set(full_key, value, seconds))

    def delete(self, key: str, version: int | None = None) -> bool:
        full_key = self.make_key(key, version)
        # It may have been set here while Redis was unavailable.
        is_here = _process.delete(full_key)
        return self._run(lambda counters: counters.delete(full_key)) or is_here

    def clear(self) -> None:
        """Removes every key of this prefix and version, here and in Redis."""
        prefix = self.make_key("")
        _process.clear(prefix)
        self._run(lambda counters: counters.clear(prefix))

    def take(self, key: str, *, limit: int, seconds: int) -> int:
        """Counts one while the count is below ``limit``; returns 0, or the milliseconds until it resets."""
        full_key = self.make_key(key)

        def take(counters: Counters) -> int:
            if counters.increment(full_key, 1, seconds) <= limit:
                return 0
            remaining = counters.milliseconds_left(full_key)
            counters.give_back(full_key)
            return remaining

        return self._run(take)

    def give_back(self, key: str) -> None:
        """Takes back a count of :meth:`take`, if its window has not ended."""
        full_key = self.make_key(key)
        # It may have been counted here while Redis was unavailable.
        if not _process.give_back(full_key):
            self._run(lambda counters: counters.give_back(full_key))

    def _run(self, operation: Callable[[Counters], T]) -> T:
        if self._redis is not None:
            try:
                return operation(self._redis)
            except Away:
                _thread.degraded = True
        return operation(_process)

    def _seconds(self, timeout: Any) -> int | None:
        chosen = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        return None if chosen is None else int(chosen)


class _Thread(threading.local):
    """State of one thread or greenlet: its last ``add``, and whether it has counted without Redis."""

    last_add: tuple[str, int, int | None] | None = None
    degraded: bool = False


def clear_degraded() -> None:
    """Resets ``is_degraded`` at the start of a request."""
    _thread.degraded = False


def is_degraded() -> bool:
    """Returns whether this thread has counted in this process because Redis was unavailable."""
    return _thread.degraded


def _result_of_add(key: str, value: int) -> int | None:
    """Returns, once, the result of this thread's last ``add`` if it added ``value`` to this key."""
    last, _thread.last_add = _thread.last_add, None
    return last[2] if last and last[:2] == (key, value) else None


@cache
def _redis(location: str) -> RedisCounters:
    """Returns the process's only client of a Redis; Django makes a cache object for every thread."""
    return RedisCounters(location)


_process = ProcessCounters()
_thread = _Thread()
