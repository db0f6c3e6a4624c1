"""The cache as a place to count in: one round trip to Redis a count, or none while Redis is away.

django-ratelimit counts with ``add(key, 1, timeout)`` and, where the key was there already, ``incr(key)``. Here the
``add`` itself counts, and the ``incr`` that the same thread sends next is answered from memory; likewise it
looks without counting by ``add(key, 0, timeout)`` and ``get(key)``. So this is a cache of whole numbers, and
anything else that is put into it is refused. What counts failures only (``config/attempts.py``) asks by ``hold``
and ``settle`` instead, which a plain cache does not have.

While Redis is away each process counts for itself; what it counted stays behind when Redis is back.
"""

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache

from config.tallies import Away, ProcessTally, RedisTally, Tally

T = TypeVar("T")


class ProcessCounters(BaseCache):
    """Django's cache interface over the numbers of this process; used as it is where no cache is configured."""

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        self._location = location

    def answers(self) -> bool | None:
        """Whether the shared cache answers; ``None`` where there is none."""
        return None

    def add(
        self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        """Counts ``value``; whether the key is new. Of 0: looks only, and stores nothing."""
        full_key, by = self._key(key, version), _whole(value)
        if by == 0:
            number = self._ask(lambda tally: tally.read(full_key))
            is_new = number is None
        else:
            seconds = self._seconds(timeout)
            if seconds is not None and seconds <= 0:
                raise ValueError("A count needs some time to live.")
            number = self._ask(lambda tally: tally.count(full_key, by, seconds))
            is_new = number == by
        _thread.last = full_key, by, number
        return is_new

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        full_key = self._key(key, version)
        number = _recalled(full_key, counted=delta)
        if number is None:
            number = self._ask(lambda tally: tally.change(full_key, _whole(delta)))
        if number is None:
            raise ValueError("There is no such key.")
        return number

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        full_key = self._key(key, version)
        number = _recalled(full_key, counted=0)
        if number is None:
            number = self._ask(lambda tally: tally.read(full_key))
        return default if number is None else number

    def set(
        self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        full_key, number, seconds = self._key(key, version), _whole(value), self._seconds(timeout)
        _thread.last = None
        if seconds is not None and seconds <= 0:
            self._ask(lambda tally: tally.remove(full_key))
        else:
            self._ask(lambda tally: tally.write(full_key, number, seconds))

    def touch(self, key: str, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        full_key, seconds = self._key(key, version), self._seconds(timeout)
        return self._ask(lambda tally: tally.keep(full_key, seconds))

    def delete(self, key: str, version: int | None = None) -> bool:
        full_key = self._key(key, version)
        _thread.last = None
        return self._ask(lambda tally: tally.remove(full_key))

    def clear(self) -> None:
        """Forgets every key of this prefix and version, here and in the shared cache."""
        prefix = self.make_key("")
        _thread.last = None
        _process.clear(prefix)
        self._ask(lambda tally: tally.clear(prefix))

    def hold(self, key: str, name: str, *, limit: int) -> int:
        """Lets an attempt begin; see :meth:`config.tallies.Tally.hold`."""
        full_key = self._key(key, None)
        return self._ask(lambda tally: tally.hold(full_key, name, limit))

    def settle(self, key: str, name: str, *, failed_for: int) -> None:
        """Ends it; see :meth:`config.tallies.Tally.settle`."""
        full_key = self._key(key, None)
        self._ask(lambda tally: tally.settle(full_key, name, failed_for=failed_for))

    def _ask(self, question: Callable[[Tally], T]) -> T:
        return question(_process)

    def _key(self, key: str, version: int | None) -> str:
        # Not looked through for what memcached could not take, which takes longer than all else here.
        return str(self.make_key(key, version=version))

    def _seconds(self, timeout: Any) -> int | None:
        chosen = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        return None if chosen is None else int(chosen)


class RedisCounters(ProcessCounters):
    """The same over Redis at ``LOCATION`` (redis://, rediss:// or unix://), and over this process while it is away."""

    def answers(self) -> bool:
        return _redis(self._location, os.getpid()).answers()

    def _ask(self, question: Callable[[Tally], T]) -> T:
        try:
            return question(_redis(self._location, os.getpid()))
        except Away:
            _thread.degraded = True
            return question(_process)


class _Thread(threading.local):
    """Of one thread, or one greenlet under gevent: its last count, and whether it had to count alone."""

    last: tuple[str, int, int | None] | None = None
    degraded: bool = False


def watch() -> None:
    """From here on ``degraded`` speaks of what this thread counts."""
    _thread.degraded = False


def degraded() -> bool:
    """Whether this thread has counted without the shared cache since ``watch``."""
    return _thread.degraded


def _recalled(key: str, *, counted: int) -> int | None:
    """The number that this thread got when it last added ``counted`` to this key, once."""
    last, _thread.last = _thread.last, None
    return last[2] if last and last[:2] == (key, counted) else None


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("This cache counts: it keeps whole numbers and nothing else.")
    return value


@cache
def _redis(location: str, pid: int) -> RedisTally:
    """The process's one client of a Redis, made anew after a fork."""
    return RedisTally(location)


_process = ProcessTally()
_thread = _Thread()
