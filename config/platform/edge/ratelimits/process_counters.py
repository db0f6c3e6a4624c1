"""Counters in this process, for a service without Redis or while Redis is unavailable."""

import heapq
import threading
from math import inf
from time import monotonic

# About 15 MB when full.
ROOM = 50_000


class ProcessCounters:
    """Holds at most ``room`` numbers.

    When it is full, it evicts expired numbers first and then the smallest: a flood of new keys evicts its own numbers,
    and a number that has reached a limit stays.
    """

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._lock = threading.Lock()
        self._numbers: dict[str, tuple[int, float]] = {}

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

    def read_many(self, keys: list[str]) -> list[int | None]:
        return [self.read(key) for key in keys]

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

    def give_back(self, key: str) -> bool:
        """Decrements a count whose window has not ended; returns whether there is one."""
        with self._lock:
            number, ends = self._numbers.get(key, (0, 0.0))
            if ends <= monotonic():
                return False
            if number > 1:
                self._numbers[key] = number - 1, ends
            else:
                del self._numbers[key]
            return True

    def milliseconds_left(self, key: str) -> int:
        _, ends = self._numbers.get(key, (0, 0.0))
        return max(int((ends - monotonic()) * 1000), 1)

    def _make_room(self) -> None:
        if len(self._numbers) < self._room:
            return
        now = monotonic()
        self._numbers = {key: kept for key, kept in self._numbers.items() if kept[1] > now}
        # Evicts a tenth at a time, so that many new keys share the cost of one search.
        if (over := len(self._numbers) - self._room * 9 // 10) > 0:
            for key in heapq.nsmallest(over, self._numbers, key=self._numbers.__getitem__):
                del self._numbers[key]
