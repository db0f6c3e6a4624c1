"""Settles calls, and retries in the background while the database is unavailable.

The caller waits for the first attempt only. Retries use the same numbers for as long as the process lives; a call whose
process dies is settled from its last checkpoint.
"""

import logging
import time
from collections import deque
from datetime import datetime
from threading import Event, Lock, Thread
from typing import Any, NamedTuple
from uuid import UUID

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from config.db.connections import release_connection
from usage.alerts import note_report
from usage.models import UsageRecord
from usage.settlement import After, Spent, move_on, settle

log = logging.getLogger(__name__)

# Seconds between two attempts: the first, and the longest.
FIRST_WAIT = 0.1
LONGEST_WAIT = 5.0


class Excess(NamedTuple):
    """The tokens of an implausible report, and those that were charged."""

    reported: int
    charged: int


class PostponedMoves:
    """A call's moves to other routes that the ledger does not know yet, for ``move_on``.

    The watch makes them once the database answers, or else the settlement does; each is made once, in their order.
    """

    def __init__(self) -> None:
        self._moves: deque[dict[str, Any]] = deque()
        self._lock = Lock()

    def __bool__(self) -> bool:
        return bool(self._moves)

    def add(self, move: dict[str, Any]) -> None:
        self._moves.append(move)

    def make(self) -> None:
        """Raises ``OperationalError`` or ``InterfaceError`` while the database is away; the others stay."""
        with self._lock:
            while self._moves:
                move_on(**self._moves[0])
                self._moves.popleft()


class Settlement(NamedTuple):
    """The settlement of one usage record: what the call cost, how that is known, and how it ended."""

    record_id: UUID
    user_id: UUID
    spent: Spent
    source: UsageRecord.Source
    end: UsageRecord.End
    first_byte_at: datetime | None
    by_capped_key: bool = False
    moves: PostponedMoves | None = None


class Settled(Event):
    """Set after the settlement; ``after`` says what it left, unless another had settled the record."""

    after: After | None = None


_pending: deque[tuple[Settlement, Excess | None, Settled]] = deque()
_lock = Lock()
_thread: Thread | None = None


def settle_or_retry(settlement: Settlement, excess: Excess | None = None) -> Settled:
    """Settles at once, or later if the database is unavailable. The event is set after the settlement."""
    settled = Settled()
    if not _settle(settlement, excess, settled):
        log.warning("settlement_postponed")
        _retry_later(settlement, excess, settled)
    return settled


def finish(*, seconds: float) -> bool:
    """Waits for pending settlements before a process ends; returns whether none is left."""
    until = time.monotonic() + seconds
    while _pending and time.monotonic() < until:
        time.sleep(FIRST_WAIT)
    return not _pending


def _settle(settlement: Settlement, excess: Excess | None, settled: Settled) -> bool:
    """False while the database is unavailable. A record that another attempt has settled counts as done.

    The caller waits for the settlement alone, and not for the alert about an excess, which is retried as well.
    """
    now = timezone.now()
    try:
        if not settled.is_set():
            values = settlement._asdict()
            if moves := values.pop("moves"):
                moves.make()
            settled.after = settle(**values, now=now)
            settled.set()
        if excess is not None:
            log.warning("provider_report_implausible")
            note_report(user_id=settlement.user_id, **excess._asdict(), now=now)
    except (OperationalError, InterfaceError):
        return False
    finally:
        release_connection()
    return True


def _retry_later(settlement: Settlement, excess: Excess | None, settled: Settled) -> None:
    global _thread  # noqa: PLW0603 - one thread a process, while settlements are pending
    with _lock:
        _pending.append((settlement, excess, settled))
        if _thread is None:
            _thread = Thread(target=_retry, name="settlement-retry", daemon=True)
            _thread.start()


def _retry() -> None:
    global _thread  # noqa: PLW0603 - as above
    wait = FIRST_WAIT
    while True:
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)
        while _pending and _is_done(*_pending[0]):
            _pending.popleft()
            wait = FIRST_WAIT
        with _lock:
            if not _pending:
                _thread = None
                return


def _is_done(settlement: Settlement, excess: Excess | None, settled: Settled) -> bool:
    """Whether no retry is needed: the record is settled, or the database refuses to settle it."""
    try:
        return _settle(settlement, excess, settled)
    except Exception:
        # A settlement that the database refuses must not delay the others; the sweep settles it.
        log.exception("settlement_failed")
        return True
