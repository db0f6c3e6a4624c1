"""Settles calls, and retries in the background while the database is unavailable.

The caller waits for the first attempt only. Retries use the same numbers for as long as the process lives; a call whose
process dies is settled from its last checkpoint.
"""

import logging
import time
from collections import deque
from threading import Event, Lock, Thread

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from config.greenlets import within
from llmproxy.dialects.protocol import TokenUsage
from usage.settlement import After, Settlement, settle

log = logging.getLogger(__name__)

# Seconds between two attempts: the first, and the longest.
FIRST_WAIT = 0.1
LONGEST_WAIT = 5.0
# The time of the first attempt, in which its caller gets no keep-alive; a hanging database takes 9 to fail.
FIRST_SECONDS = 2.0


class Settled(Event):
    """Set after the settlement; ``after`` says what it left, unless another had settled the record."""

    def __init__(self, settlement: Settlement) -> None:
        super().__init__()
        self.settlement = settlement
        self.after: After | None = None

    @property
    def charged(self) -> TokenUsage:
        spent = self.settlement.spent
        return TokenUsage(
            spent.input, spent.output, spent.cached_input, spent.reasoning, spent.cache_write
        )


_pending: deque[Settled] = deque()
_lock = Lock()
_thread: Thread | None = None


def settle_or_retry(settlement: Settlement) -> Settled:
    """Settles at once, or later if the database is unavailable. The event is set after the settlement."""
    settled = Settled(settlement)
    if settlement.excess is not None:
        log.warning("provider_report_implausible")
    try:
        is_settled = within(FIRST_SECONDS, _settle, settled)
    except TimeoutError:
        is_settled = False
    if not is_settled:
        log.warning("settlement_postponed")
        _retry_later(settled)
    return settled


def finish(*, seconds: float) -> bool:
    """Waits for pending settlements before a process ends; returns whether none is left."""
    until = time.monotonic() + seconds
    while _pending and time.monotonic() < until:
        time.sleep(FIRST_WAIT)
    return not _pending


def _settle(settled: Settled) -> bool:
    """False while the database is unavailable. A record that another attempt has settled counts as done."""
    try:
        settled.after = settle(settled.settlement, now=timezone.now())
        settled.set()
    except (OperationalError, InterfaceError):
        return False
    return True


def _retry_later(settled: Settled) -> None:
    global _thread  # noqa: PLW0603 - one thread a process, while settlements are pending
    with _lock:
        _pending.append(settled)
        if _thread is None:
            _thread = Thread(target=_retry, name="settlement-retry", daemon=True)
            _thread.start()


def _retry() -> None:
    global _thread  # noqa: PLW0603 - as above
    wait = FIRST_WAIT
    while True:
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)
        while _pending and _is_done(_pending[0]):
            _pending.popleft()
            wait = FIRST_WAIT
        with _lock:
            if not _pending:
                _thread = None
                return


def _is_done(settled: Settled) -> bool:
    """Whether no retry is needed: the record is settled, or the database refuses to settle it."""
    try:
        return _settle(settled)
    except Exception:
        # A settlement that the database refuses must not delay the others; the sweep settles it.
        log.exception("settlement_failed")
        return True
