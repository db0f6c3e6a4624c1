"""Counters in this process, for a service without Redis or while Redis is away."""

import heapq
import threading
from collections import defaultdict
from math import inf
from time import monotonic

from config.ratelimits.redis_counters import BUSY, STARTED

# About 15 MB when full.
ROOM = 50_000


class ProcessCounters:
    """Holds at most ``room`` numbers.

    When it is full, the expired numbers go first and then the smallest: a flood of new keys evicts its own numbers, and
    a number that has grown up to a limit stays.
    """

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._lock = threading.RLock()
        self._numbers: dict[str, tuple[int, float]] = {}
        self._running: defaultdict[str, set[str]] = defaultdict(set)

    def increment(self, key: str, by: int, seconds: int | None) -> int:
        with self._lock:
            number, ends = self._numbers.get(key, (0, 0.0))
            if ends <= monotonic():
                self._make_room()
                number, ends = 0, inf if seconds is None else monotonic() + seconds
            self._numbers[key] = number + by, ends
            return number + by

    def read(self, key: str) -> int | None:
        number, ends = self._numbers.get(key, (0, 0.0))
        return number if ends > monotonic() else None

    def set(self, key: str, number: int, seconds: int | None) -> None:
        with self._lock:
            self._make_room()
            self._numbers[key] = number, inf if seconds is None else monotonic() + seconds

    def delete(self, key: str) -> bool:
        with self._lock:
            return self._numbers.pop(key, None) is not None

    def clear(self, prefix: str) -> None:
        with self._lock:
            for key in [each for each in self._numbers if each.startswith(prefix)]:
                del self._numbers[key]

    def begin_attempt(self, key: str, name: str, limit: int) -> int:
        with self._lock:
            failed = self.read(key) or 0
            if failed >= limit:
                return max(1, int((self._numbers[key][1] - monotonic()) * 1000))
            if failed + len(self._running.get(key, ())) >= limit:
                return BUSY
            self._running[key].add(name)
            return STARTED

    def end_attempt(self, key: str, name: str, failed_for: int) -> None:
        with self._lock:
            self._running[key].discard(name)
            if not self._running[key]:
                del self._running[key]
            if failed_for:
                self.increment(key, 1, failed_for)

    def _make_room(self) -> None:
        if len(self._numbers) < self._room:
            return
        now = monotonic()
        self._numbers = {key: kept for key, kept in self._numbers.items() if kept[1] > now}
        # A tenth at a time, so that many new keys share the cost of one search.
        if (over := len(self._numbers) - self._room * 9 // 10) > 0:
            for key in heapq.nsmallest(over, self._numbers, key=self._numbers.__getitem__):
                del self._numbers[key]
