"""Gathers concurrent executions of one kind into batches (group commit).

While a batch is in flight, further executions queue and run together as the next one. One of them, the leader, runs
the batch in an uninterruptible task, because the others depend on it; an interrupted caller gives up only its place.
The leader first waits briefly for the process to become idle, since other requests may add executions.
"""

from collections import deque
from threading import Event, Lock
from time import monotonic
from typing import Any, Generic, TypeVar

from config.platform.concurrency.greenlets import run_uninterrupted, wait_until_idle

# A slower batch may be waiting for a lock; the next one starts beside it.
PATIENCE_SECONDS = 0.05
WAIT_SECONDS = 15.0
MOST = 32
# The longest that a leader waits for further executions.
GATHER_SECONDS = 0.002
MOST_IN_FLIGHT = 4


class Execution:
    """One execution. Its error is cleared when it succeeds."""

    __slots__ = ("deadline", "error", "has_started", "is_done", "woken")

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.has_started = self.is_done = False
        self.deadline = monotonic() + WAIT_SECONDS
        # Set only while it waits.
        self.woken: Event | None = None


E = TypeVar("E", bound=Execution)


class Batches(Generic[E]):
    """The batches of one kind of execution in this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.waiting: deque[E] = deque()
        self._has_leader = False
        self._in_flight = 0
        self._started_at = 0.0

    def acquire(self, leader: E) -> Any:
        """Acquires the resource for a batch by the leader's deadline. An error fails every waiting execution."""

    def run(self, batch: list[E], resource: Any) -> None:
        """Runs a batch, which may be empty, and stores the result of each execution."""
        raise NotImplementedError

    def execute(self, execution: E) -> None:
        """Waits until this thread or another has run the execution, or its deadline has passed."""
        try:
            self._await(execution)
        finally:
            # Timed out or killed: it must not run any more.
            with self._lock:
                if not execution.has_started:
                    self.waiting.remove(execution)
                    self._wake_first()

    def _await(self, execution: E) -> None:
        with self._lock:
            self.waiting.append(execution)
            leads = self._may_lead()
        if not leads:
            execution.woken = Event()
            leads = self._wait(execution, execution.woken)
        if leads:
            run_uninterrupted(self._lead, execution)

    def _wait(self, execution: E, woken: Event) -> bool:
        """Returns True if this execution must lead, False once it is done or too late."""
        while True:
            woken.clear()
            with self._lock:
                remaining, has_started = execution.deadline - monotonic(), execution.has_started
                if execution.is_done or (remaining < 0 and not has_started):
                    return False
                if not has_started and self._may_lead():
                    return True
                # Hundreds may wait, so only the first polls.
                is_first = not has_started and self.waiting[0] is execution
            woken.wait(PATIENCE_SECONDS if is_first else None if has_started else remaining)

    def _may_lead(self) -> bool:
        """Makes the caller the leader of the next batch, if it is time for one."""
        is_late = monotonic() - self._started_at > PATIENCE_SECONDS
        is_free = not self._in_flight or (is_late and self._in_flight < MOST_IN_FLIGHT)
        leads = is_free and not self._has_leader
        self._has_leader |= leads
        return leads

    def _lead(self, leader: E) -> None:
        batch: list[E] | None = None
        try:
            wait_until_idle(GATHER_SECONDS)
            try:
                resource = self.acquire(leader)
            except Exception as error:  # noqa: BLE001 - each caller gets it
                batch = self._start(leader, len(self.waiting))
                for each in batch:
                    each.error = error
            else:
                batch = self._start(leader, MOST)
                self.run(batch, resource)
        finally:
            self._finish(batch)

    def _start(self, leader: E, most: int) -> list[E]:
        """Takes the next batch from the queue: the leader, unless it has given up, and further executions."""
        with self._lock:
            batch = []
            if leader in self.waiting:
                self.waiting.remove(leader)
                batch.append(leader)
            while self.waiting and len(batch) < most:
                batch.append(self.waiting.popleft())
            for each in batch:
                each.has_started = True
            self._has_leader = False
            self._in_flight += 1
            self._started_at = monotonic()
            self._wake_first()
        return batch

    def _finish(self, batch: list[E] | None) -> None:
        """Ends a batch, or the leadership of one that never started."""
        with self._lock:
            if batch is None:
                self._has_leader = False
            else:
                self._in_flight -= 1
            self._wake_first()
        for each in batch or ():
            each.is_done = True
            if each.woken is not None:
                each.woken.set()

    def _wake_first(self) -> None:
        if self.waiting and (woken := self.waiting[0].woken) is not None:
            woken.set()
