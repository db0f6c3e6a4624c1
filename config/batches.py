"""Gathers concurrent executions of one kind into batches (group commit).

While one batch is in flight, further executions wait and then leave together. One that comes alone leaves at once.
"""

from collections import deque
from threading import Event, Lock
from time import monotonic
from typing import Generic, TypeVar

# A flight that takes longer may be waiting for a lock; nobody else waits behind it.
PATIENCE_SECONDS = 0.05
MOST = 32


class Execution:
    """One execution, with an error until it is over and has none."""

    __slots__ = ("error", "has_left", "is_over", "woken")

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.has_left = self.is_over = False
        # Only for one that has to wait.
        self.woken: Event | None = None


E = TypeVar("E", bound=Execution)


class Batches(Generic[E]):
    """The batches of one kind of execution in this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.waiting: deque[E] = deque()
        # How many flights are out, and when the last one left.
        self._flights = 0
        self._left_at = 0.0

    def fly(self, batch: list[E]) -> None:
        """Executes a batch and notes the result of each."""
        raise NotImplementedError

    def before_waiting(self) -> None:
        """Called before an execution waits, in its own thread."""

    def execute(self, execution: E) -> None:
        """Returns once the execution is over, in a flight that this thread or another leads."""
        try:
            self._await(execution)
        except BaseException:
            # A killed greenlet: nothing may be done for it any more.
            with self._lock:
                if not execution.has_left:
                    self.waiting.remove(execution)
            raise

    def _await(self, execution: E) -> None:
        batch: list[E] = []
        with self._lock:
            self.waiting.append(execution)
            if not self._flights or monotonic() - self._left_at > PATIENCE_SECONDS:
                batch = self._leave(execution)
            else:
                execution.woken = Event()
        if not batch:
            self.before_waiting()
        while not batch and not execution.is_over:
            assert execution.woken is not None
            execution.woken.wait(PATIENCE_SECONDS)
            with self._lock:
                # Not by a search: hundreds may wait.
                if not execution.has_left:
                    batch = self._leave(execution)
        if batch:
            self._lead(batch)

    def _leave(self, first: E) -> list[E]:
        """The next batch: ``first`` and others that wait. Under the lock."""
        self.waiting.remove(first)
        batch = [first]
        while self.waiting and len(batch) < MOST:
            batch.append(self.waiting.popleft())
        for each in batch:
            each.has_left = True
            if each.woken is not None:
                each.woken.clear()
        self._flights += 1
        self._left_at = monotonic()
        return batch

    def _lead(self, batch: list[E]) -> None:
        try:
            self.fly(batch)
        finally:
            # Also where this greenlet is killed in flight: nobody knows then what has been done.
            with self._lock:
                self._flights -= 1
                first = self.waiting[0].woken if self.waiting else None
            if first is not None:
                first.set()
            for each in batch:
                each.is_over = True
                if each.woken is not None:
                    each.woken.set()
