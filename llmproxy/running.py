"""The calls this process is relaying, and the watch over them.

Every few seconds, for all of them together, however many there are: two queries end those whose caller may go on
no longer (a revocation, the end of a session or of a client's licence, an operator's stop cuts the exchange with
the provider, and the relay says why in the stream), one statement notes what they have cost so far, in case this
process dies, and those whose client has hung up are cut.
"""

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from django.conf import settings
from django.db import Error as DatabaseError
from django.db.models import BooleanField, ExpressionWrapper, Q
from django.db.models.functions import Now
from django.utils import timezone

from accounts.models import Session
from accounts.sessions.authentication import AccessRevoked
from config.api.problems import Problem
from config.database import release_connection
from config.db.uuid7 import one_of
from licensing.models import Standing
from licensing.permissions import LicenceSuspended
from llmproxy.calls import Call, End
from llmproxy.exchange import Exchange
from usage.checkpoints import SoFar, checkpoint
from usage.stops import ModelCallsStopped, told_to_end

log = logging.getLogger(__name__)

WATCH_SECONDS = 3.0
# A call of which there is nothing new is noted this often all the same.
HEARTBEAT_SECONDS = 20.0
# After so many of them, others have their turn.
AT_ONCE = 50
# A relay that has not settled so long after its call was cut is held up by a client that does not read.
HELD_UP_SECONDS = 10.0


@dataclass(slots=True)
class _Running:
    """A call, what was last noted of it, and when it was cut from here. Times on the monotonic clock."""

    call: Call
    exchange: Exchange
    began: float = field(default_factory=time.monotonic)
    noted: SoFar | None = None
    noted_at: float = 0.0
    cut_at: float | None = None

    def cut(self) -> None:
        self.exchange.close()
        self.cut_at = self.cut_at or time.monotonic()


_running: dict[UUID, _Running] = {}
_starting = threading.Lock()
_watch: threading.Thread | None = None


def register(call: Call, exchange: Exchange) -> None:
    """From now on the call ends when its caller's access does."""
    _running[call.id] = _Running(call, exchange)
    _start_watch()


def forget(call: Call) -> None:
    _running.pop(call.id, None)


def look() -> None:
    """Ends every running call whose caller may go on no longer."""
    calls = list(_running.values())
    if not calls:
        return
    states = _states({each.call.caller.session_id for each in calls})
    stopped = told_to_end(record_ids=[each.call.id for each in calls], now=timezone.now())
    for each in calls:
        reason = _reason(each.call, states.get(each.call.caller.session_id))
        if reason is None and each.call.id in stopped:
            reason = ModelCallsStopped()
        if reason is not None:
            each.call.stopped = each.call.stopped or reason
            each.cut()


def look_for_departures() -> None:
    """Ends every running call whose client has hung up; where only its usage is to come, at the next look."""
    for each in _in_turn():
        if each.cut_at is None and each.call.has_left():
            waits = each.call.awaits_usage() and not each.call.left
            each.call.left = True
            if not waits:
                each.cut()


def note() -> None:
    """Notes what has changed of the running calls: what they have cost so far."""
    news: list[tuple[_Running, SoFar]] = []
    now = time.monotonic()
    for each in _in_turn():
        so_far = each.call.so_far()
        if so_far != each.noted or now - each.noted_at >= HEARTBEAT_SECONDS:
            news.append((each, so_far))
    noted = checkpoint([so_far for _, so_far in news])
    for each, so_far in news:
        if each.call.id in noted:
            each.noted, each.noted_at = so_far, now


def settle_held_up() -> None:
    """Settles calls that are over, though their relay is still writing to a client that does not read."""
    now = time.monotonic()
    for each in list(_running.values()):
        if each.cut_at is None and now - each.began > settings.LLM_MAX_SECONDS + HELD_UP_SECONDS:
            each.cut()
        if each.cut_at is not None and now - each.cut_at > HELD_UP_SECONDS:
            each.call.settle(_end_of(each.call))
            forget(each.call)


def _in_turn() -> Iterator[_Running]:
    """All that run now. Nobody waits until they have been gone through."""
    for number, each in enumerate(list(_running.values()), 1):
        yield each
        if number % AT_ONCE == 0:
            time.sleep(0)


def _end_of(call: Call) -> End:
    if call.stopped is not None:
        return End.STOPPED
    return End.CLIENT_GONE if call.left else End.TIMEOUT


def _reason(call: Call, state: tuple[int, bool, bool, str | None] | None) -> Problem | None:
    if state is None:
        return AccessRevoked()
    epoch, is_active, has_ended, status = state
    if epoch != call.caller.epoch or not is_active or has_ended or status is None:
        return AccessRevoked()
    return LicenceSuspended() if status == Standing.SUSPENDED else None


def _states(sessions: set[UUID]) -> dict[UUID, tuple[int, bool, bool, str | None]]:
    over = Q(ended_at__isnull=False) | Q(expires_at__isnull=False, expires_at__lte=Now())
    is_over = ExpressionWrapper(over, BooleanField())
    rows = Session.objects.filter(pk__in=one_of(sessions)).values_list(
        "pk", "user__epoch", "user__is_active", is_over, "user__client__licence__status"
    )
    return {pk: (epoch, active, over, status) for pk, epoch, active, over, status in rows}


def _start_watch() -> None:
    global _watch  # noqa: PLW0603 - one thread a process, begun with the first call
    with _starting:
        if _watch is None or not _watch.is_alive():
            _watch = threading.Thread(target=_watching, name="running-calls", daemon=True)
            _watch.start()


def _watching() -> None:
    """Runs as long as the process; while nothing is relayed it asks the database nothing."""
    pause = threading.Event()
    while True:
        pause.wait(WATCH_SECONDS)
        for act in (look_for_departures, look, note, settle_held_up):
            try:
                act()
            except DatabaseError:
                log.warning("running_calls_not_checked")
            except Exception:
                # The watch must outlive whatever one call does to it.
                log.exception("watch_failed")
        release_connection()
