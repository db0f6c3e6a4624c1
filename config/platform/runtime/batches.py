"""Gathers concurrent executions of one kind into batches (group commit).

While one batch is in flight, further executions wait and then leave together. A flight departs once its process has
nothing else to do, after a moment at most: what keeps it busy brings others here. It runs in a task of its own that
nothing interrupts, because others depend on it; a caller that is interrupted gives up its own place only.
"""

from collections import deque
from threading import Event, Lock
from time import monotonic
from typing import Any, Generic, TypeVar

from config.platform.runtime.greenlets import lull, run_whole

# A flight that takes longer may be waiting for a lock; the next does not wait behind it.
PATIENCE_SECONDS = 0.05
WAIT_SECONDS = 15.0
MOST = 32
# The longest that a leader waits for company.
MOMENT_SECONDS = 0.002
FLIGHTS = 4


class Execution:
    """One execution, with an error until it is over and has none."""

    __slots__ = ("error", "has_left", "is_over", "waits_until", "woken")

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.has_left = self.is_over = False
        self.waits_until = monotonic() + WAIT_SECONDS
        # Only for one that has to wait.
        self.woken: Event | None = None


E = TypeVar("E", bound=Execution)


class Batches(Generic[E]):
    """The batches of one kind of execution in this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.waiting: deque[E] = deque()
        # Whether one of them boards the next flight, how many are out, and when the last one left.
        self._is_boarding = False
        self._flights = 0
        self._left_at = 0.0

    def board(self, leader: E) -> Any:
        """Fetches what a flight needs, for as long as its leader waits. Raises what all who wait fail for."""

    def fly(self, batch: list[E], aboard: Any) -> None:
        """Executes a batch, which may be empty, and notes the result of each."""
        raise NotImplementedError

    def execute(self, execution: E) -> None:
        """Returns once the execution is over, in a flight that this thread or another leads, or has waited too long."""
        try:
            self._await(execution)
        finally:
            # Too late, or a killed greenlet: nothing may be done for it any more.
            with self._lock:
                if not execution.has_left:
                    self.waiting.remove(execution)
                    self._wake_first()

    def _await(self, execution: E) -> None:
        with self._lock:
            self.waiting.append(execution)
            leads = self._may_board()
        if not leads:
            execution.woken = Event()
            leads = self._wait(execution, execution.woken)
        if leads:
            run_whole(self._lead, execution)

    def _wait(self, execution: E, woken: Event) -> bool:
        """Whether this execution shall lead; else it is over, or has waited too long."""
        while True:
            woken.clear()
            with self._lock:
                left, has_left = execution.waits_until - monotonic(), execution.has_left
                if execution.is_over or (left < 0 and not has_left):
                    return False
                if not has_left and self._may_board():
                    return True
                # Hundreds may wait, so only the first looks up by itself.
                is_first = not has_left and self.waiting[0] is execution
            woken.wait(PATIENCE_SECONDS if is_first else None if has_left else left)

    def _may_board(self) -> bool:
        """Whether the caller leads the next flight."""
        is_late = monotonic() - self._left_at > PATIENCE_SECONDS
        is_free = not self._flights or (is_late and self._flights < FLIGHTS)
        leads = is_free and not self._is_boarding
        self._is_boarding |= leads
        return leads

    def _lead(self, leader: E) -> None:
        batch: list[E] | None = None
        try:
            lull(MOMENT_SECONDS)
            try:
                aboard = self.board(leader)
            except Exception as error:  # noqa: BLE001 - each caller gets it
                batch = self._leave(leader, len(self.waiting))
                for each in batch:
                    each.error = error
            else:
                batch = self._leave(leader, MOST)
                self.fly(batch, aboard)
        finally:
            self._land(batch)

    def _leave(self, leader: E, most: int) -> list[E]:
        """The next batch: its leader, unless that has given up, and others that wait."""
        with self._lock:
            batch = []
            if leader in self.waiting:
                self.waiting.remove(leader)
                batch.append(leader)
            while self.waiting and len(batch) < most:
                batch.append(self.waiting.popleft())
            for each in batch:
                each.has_left = True
            self._is_boarding = False
            self._flights += 1
            self._left_at = monotonic()
            self._wake_first()
        return batch

    def _land(self, batch: list[E] | None) -> None:
        """Ends a flight, also an empty one, or where there is no batch the boarding for it."""
        with self._lock:
            if batch is None:
                self._is_boarding = False
            else:
                self._flights -= 1
            self._wake_first()
        for each in batch or ():
            each.is_over = True
            if each.woken is not None:
                each.woken.set()

    def _wake_first(self) -> None:
        if self.waiting and (woken := self.waiting[0].woken) is not None:
            woken.set()
