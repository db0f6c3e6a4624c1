"""Settles calls, and retries in the background while the database is unavailable.

Nothing interrupts a settlement: it runs in a task of its own, and its caller waits for a while only. Retries use the
same numbers for as long as the process lives; a call whose process dies is settled from its last checkpoint.
"""

import logging
import time
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, Queue
from threading import Event, Lock

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from config.platform.concurrency.greenlets import is_interruptible, spawn
from config.platform.problems.problem import ServiceUnavailable
from llmproxy.dialects.protocol import TokenUsage
from usage.settlement import After, Settlement, settle

log = logging.getLogger(__name__)

# Seconds between two attempts: the first, and the longest.
FIRST_WAIT = 0.1
LONGEST_WAIT = 5.0
# The time in which a caller waits without a keep-alive.
FIRST_SECONDS = 2.0
# As many as leave in the flights of a batched statement.
MOST_TASKS = 128
# A task without work ends after so many seconds.
IDLE_SECONDS = 30.0
# Settlements that are pending in one process before it admits no further call.
MOST_PENDING = 4_096


class Settled(Event):
    """Set after the settlement; ``after`` has the totals left by it, unless another had settled the record.

    One that the database has refused (``is_refused``) is set too: only the sweep settles it, and nobody waits for that.
    """

    def __init__(self, settlement: Settlement) -> None:
        super().__init__()
        self.settlement = settlement
        # Of its request, whose id and trace are on what is logged of it.
        self.context = copy_context()
        self.after: After | None = None
        # The database was unavailable, or has refused the settlement.
        self.has_failed = False
        self.is_refused = False

    @property
    def charged(self) -> TokenUsage:
        spent = self.settlement.spent
        return TokenUsage(
            spent.input, spent.output, spent.cached_input, spent.reasoning, spent.cache_write
        )


class Outbox:
    """The settlements of this process that are pending, and the tasks that settle them side by side.

    A task lives on for a while, since it keeps what Django has of a database for itself.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._pending: set[Settled] = set()
        self._queue: Queue[Settled] = Queue()
        self._tasks = self._idle = 0

    def __len__(self) -> int:
        return len(self._pending)

    def settle(self, settled: Settled) -> None:
        """Begins to settle, and waits for a moment."""
        self._pending.add(settled)
        if is_interruptible() or not self._is_done(settled):
            self._hand_over(settled)
        if settled.has_failed or not settled.wait(FIRST_SECONDS):
            log.warning("settlement_postponed")

    def _hand_over(self, settled: Settled) -> None:
        with self._lock:
            self._queue.put(settled)
            begins = self._queue.qsize() > self._idle and self._tasks < MOST_TASKS
            self._tasks += begins
        if begins:
            spawn(self._work)

    def _work(self) -> None:
        while (settled := self._next()) is not None:
            wait = FIRST_WAIT
            while not settled.context.run(self._is_done, settled):
                time.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)

    def _next(self) -> Settled | None:
        """The next settlement; None where none has come for a while."""
        settled = None
        with self._lock:
            self._idle += 1
        with suppress(Empty):
            settled = self._queue.get(timeout=IDLE_SECONDS)
        with self._lock:
            self._idle -= 1
            if settled is None:
                # One may have come in the last moment, for which no task was begun.
                with suppress(Empty):
                    settled = self._queue.get_nowait()
            self._tasks -= settled is None
        return settled

    def _is_done(self, settled: Settled) -> bool:
        """Returns whether the record is settled, by this attempt or another, or the database refuses to settle it."""
        try:
            settled.after = settle(settled.settlement, now=timezone.now())
        except (OperationalError, InterfaceError):
            settled.has_failed = True
            return False
        except Exception:
            # A settlement that the database refuses must not delay the others; the sweep settles it.
            settled.has_failed = settled.is_refused = True
            log.exception("settlement_failed")
        self._pending.discard(settled)
        settled.set()
        return True


_outbox = Outbox()


def settle_or_retry(settlement: Settlement) -> Settled:
    """Settles at once, or later if the database is unavailable. The event is set after the settlement."""
    settled = Settled(settlement)
    if settlement.excess is not None:
        log.warning("provider_report_implausible")
    _outbox.settle(settled)
    return settled


def pending() -> int:
    """The calls of this process that have ended and are not settled."""
    return len(_outbox)


def check_room() -> None:
    """Raises ``ServiceUnavailable`` while too many settlements are pending for further calls."""
    if len(_outbox) >= MOST_PENDING:
        raise ServiceUnavailable(retry_after=round(LONGEST_WAIT))


def finish(*, seconds: float) -> bool:
    """Waits for pending settlements before a process ends; returns whether none is left."""
    until = time.monotonic() + seconds
    while len(_outbox) and time.monotonic() < until:
        time.sleep(FIRST_WAIT)
    return not len(_outbox)
