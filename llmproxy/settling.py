"""Settling a call although the database may be away: at once, and otherwise again until it is back.

Who settles waits for the first attempt alone. What that could not do is done beside everything else, with the
same numbers, for as long as the process lives; what dies with it is settled from its last checkpoint.
"""

import logging
import time
from collections import deque
from datetime import datetime
from threading import Event, Lock, Thread
from typing import NamedTuple
from uuid import UUID

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from config.database import release_connection
from usage.models import UsageRecord
from usage.settlement import Spent, settle

log = logging.getLogger(__name__)

# Seconds between two attempts: the first, and the longest.
FIRST_WAIT = 0.1
LONGEST_WAIT = 5.0


class Due(NamedTuple):
    """The settlement of one record of a person: what it cost, how that is known, and how it ended."""

    record_id: UUID
    user_id: UUID
    spent: Spent
    source: UsageRecord.Source
    end: UsageRecord.End
    first_byte_at: datetime | None


_due: deque[tuple[Due, Event]] = deque()
_lock = Lock()
_thread: Thread | None = None


def settle_surely(due: Due) -> Event:
    """Settles; the event is set once that is done, which is now unless the database is away."""
    settled = Event()
    if _settle(due):
        settled.set()
    else:
        log.warning("settlement_postponed")
        _try_again(due, settled)
    return settled


def finish(*, seconds: float) -> bool:
    """Waits so long for what is still to be settled, as before a process ends; whether nothing is left."""
    until = time.monotonic() + seconds
    while _due and time.monotonic() < until:
        time.sleep(FIRST_WAIT)
    return not _due


def _settle(due: Due) -> bool:
    """False where the database is away. That it was settled by another attempt is as good."""
    try:
        settle(**due._asdict(), now=timezone.now())
    except (OperationalError, InterfaceError):
        return False
    finally:
        release_connection()
    return True


def _try_again(due: Due, settled: Event) -> None:
    global _thread  # noqa: PLW0603 - one thread a process, for as long as something is due
    with _lock:
        _due.append((due, settled))
        if _thread is None:
            _thread = Thread(target=_keep_trying, name="settling", daemon=True)
            _thread.start()


def _keep_trying() -> None:
    global _thread  # noqa: PLW0603 - as above
    wait = FIRST_WAIT
    while True:
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)
        while _due and _is_done(*_due[0]):
            _due.popleft()
            wait = FIRST_WAIT
        with _lock:
            if not _due:
                _thread = None
                return


def _is_done(due: Due, settled: Event) -> bool:
    """Whether there is nothing more to try: it is settled, or will never be in this way."""
    try:
        if not _settle(due):
            return False
    except Exception:
        # The others must not wait for one that the database refuses; the sweep settles it.
        log.exception("settlement_failed")
        return True
    settled.set()
    return True
