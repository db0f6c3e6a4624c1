"""Watches the model calls that this process relays, with one thread and a few queries for all of them together.

Every few seconds the watch cuts calls whose caller has lost access (revocation, end of the session, suspension, an
operator's stop; the stream ends with the reason) and streams whose client has disconnected. Whole answers whose client
has disconnected are read to their end, a number at once for each person. The watch also saves checkpoints of what the
running calls cost, in case this process dies.
"""

import logging
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from django.db import Error as DatabaseError
from django.db.models import BooleanField, ExpressionWrapper, F, Q
from django.db.models.functions import Now
from django.utils import timezone

from accounts.models import Session, User
from accounts.sessions.authentication import AccessRevoked
from config.platform.db.connections import release_connection
from config.platform.problems.problem import Problem
from licensing.callers import Caller
from licensing.models import Standing
from licensing.permissions import LicenceSuspended, NotEntitled
from llmproxy.calls.call import Call
from llmproxy.calls.stop import StopReason
from llmproxy.catalogue import health
from llmproxy.keys.personal_keys import ENDED, NO_KEYS
from llmproxy.models import PersonalKey
from usage.caps import SoFar, begin_background_read, checkpoint
from usage.stops import ModelCallsStopped, ended_by_operators

log = logging.getLogger(__name__)

WATCH_SECONDS = 3.0
# Whole answers of one person that are read at once after their client has disconnected.
MOST_BACKGROUND_READS = 30
# Seconds after which an unchanged call is saved again.
HEARTBEAT_SECONDS = 20.0
# Calls after which other greenlets run.
BATCH = 50
# A relay that has not settled within this time after the cut is blocked by a client that does not read.
HELD_UP_SECONDS = 10.0


@dataclass(slots=True)
class _WatchedCall:
    """A call, its last checkpoint, and when the watch cut it. Times are on the monotonic clock."""

    call: Call
    saved: SoFar | None = None
    saved_at: float = 0.0
    cut_at: float | None = None

    def cut(self, reason: StopReason, problem: Problem | None = None) -> None:
        self.call.cut(reason, problem)
        self.cut_at = self.cut_at or time.monotonic()


_calls: dict[UUID, _WatchedCall] = {}
_starting = threading.Lock()
_watch: threading.Thread | None = None


@contextmanager
def watched(call: Call) -> Iterator[None]:
    """Watches a call during the block, at whose end it cuts what is left of the call's exchange."""
    _calls[call.id] = _WatchedCall(call)
    _start()
    try:
        yield
    finally:
        _end(call)


def _end(call: Call) -> None:
    """Cuts what is left of a call's exchange, and watches it no longer. Idempotent."""
    if call.attempt is not None:
        call.attempt.close()
    _calls.pop(call.id, None)


def end_refused() -> None:
    """Ends every running call whose caller has lost access."""
    calls = list(_calls.values())
    if not calls:
        return
    standings = _standings([each.call.admission.caller for each in calls])
    stopped = ended_by_operators(record_ids=[each.call.id for each in calls], now=timezone.now())
    for each in calls:
        caller = each.call.admission.caller
        if problem := _problem(caller, standings.get(_credential_of(caller))):
            each.cut(StopReason.ACCESS_GONE, problem)
        elif each.call.id in stopped:
            each.cut(StopReason.OPERATOR, ModelCallsStopped())


def end_disconnected() -> None:
    """Ends every running stream whose client has disconnected, and whole answers beyond a number for each person.

    A stream that only awaits its usage ends a round later.
    """
    now = time.monotonic()
    whole: list[_WatchedCall] = []
    for each in _in_batches():
        call = each.call
        is_stream = call.admission.request.stream
        if each.cut_at is not None or (call.left_at is not None and not is_stream):
            continue
        if not call.has_left():
            continue
        if not is_stream:
            whole.append(each)
            continue
        awaits_usage = call.attempt is not None and call.attempt.meter.awaits_usage
        goes_on = call.left_at is None and awaits_usage
        call.left_at = call.left_at or now
        if not goes_on:
            each.cut(StopReason.CLIENT_GONE)
    # Last, because only these need the database: while it is away, they are read on.
    for each in whole:
        goes_on = _may_be_read_on(each.call)
        each.call.left_at = now
        if not goes_on:
            each.cut(StopReason.CLIENT_GONE)


def _may_be_read_on(call: Call) -> bool:
    try:
        return begin_background_read(
            record_id=call.id,
            user_id=call.admission.caller.user_id,
            most=MOST_BACKGROUND_READS,
            now=timezone.now(),
        )
    except User.DoesNotExist:
        return False


def under_way() -> dict[str, int]:
    """Returns the number of calls that this process relays, including those read on without their client."""
    numbers = {"stream": 0, "whole": 0, "background": 0}
    for each in list(_calls.values()):
        is_stream = each.call.admission.request.stream
        is_left = each.call.left_at is not None
        numbers["stream" if is_stream else "background" if is_left else "whole"] += 1
    return numbers


def end_all() -> None:
    """Ends every running call, because this process ends."""
    for each in list(_calls.values()):
        each.cut(StopReason.PROCESS_ENDS)


def save_checkpoints() -> None:
    """Saves the costs of the running calls that have changed, and whom they ask."""
    changed: list[tuple[_WatchedCall, SoFar]] = []
    now = time.monotonic()
    for each in _in_batches():
        so_far = each.call.so_far()
        if so_far != each.saved or now - each.saved_at >= HEARTBEAT_SECONDS:
            changed.append((each, so_far))
    saved = checkpoint([so_far for _, so_far in changed])
    for each, so_far in changed:
        if each.call.id in saved:
            each.saved, each.saved_at = so_far, now


def settle_held_up() -> None:
    """Settles ended calls whose relay is blocked by a client that does not read."""
    now = time.monotonic()
    for each in list(_calls.values()):
        if each.cut_at is None and now - each.call.deadline > HELD_UP_SECONDS:
            each.cut(StopReason.TOO_LATE)
        if each.cut_at is not None and now - each.cut_at > HELD_UP_SECONDS:
            reason = each.call.stop.reason or StopReason.TOO_LATE
            each.call.settle(reason.end, told=each.call.stop.problem)
            _end(each.call)


def _in_batches() -> Iterator[_WatchedCall]:
    """All running calls; other greenlets run between the batches."""
    for number, each in enumerate(list(_calls.values()), 1):
        yield each
        if number % BATCH == 0:
            time.sleep(0)


class _Standing(NamedTuple):
    """A session's or personal key's access now."""

    epoch: int
    is_active: bool
    is_over: bool
    licence: str | None
    # For a call by a personal key: its plan has personal keys.
    is_allowed: bool = True

    @property
    def has_access(self) -> bool:
        return self.is_active and not self.is_over and self.licence is not None


def _credential_of(caller: Caller) -> UUID | None:
    """The id of the session or personal key of a caller."""
    return caller.session_id if caller.key is None else caller.key.id


def _problem(caller: Caller, now: _Standing | None) -> Problem | None:
    """The reason to end a caller's calls; None while they have access."""
    if now is None or now.epoch != caller.epoch or not now.has_access:
        return AccessRevoked(None if caller.key is None else ENDED)
    if not now.is_allowed:
        return NotEntitled(NO_KEYS)
    return LicenceSuspended() if now.licence == Standing.SUSPENDED else None


def _standings(callers: Collection[Caller]) -> dict[UUID | None, _Standing]:
    """The access of the callers' sessions and keys, by id; those that are gone are missing."""
    sessions = {each.session_id for each in callers if each.session_id is not None}
    keys = {each.key.id for each in callers if each.key is not None}
    over = Q(ended_at__isnull=False) | Q(expires_at__isnull=False, expires_at__lte=Now())
    is_over = ExpressionWrapper(over, BooleanField())
    columns = ("pk", "user__epoch", "user__is_active", is_over, "user__client__licence__status")
    rows = [*Session.objects.filter(pk__in=sessions).values_list(*columns)] if sessions else []
    if keys:
        allowed = F("user__client__licence__plan__allows_keys")
        rows += PersonalKey.objects.filter(pk__in=keys).values_list(*columns, allowed)
    return {pk: _Standing(*state) for pk, *state in rows}


def _start() -> None:
    global _watch  # noqa: PLW0603 - one thread a process, begun with the first call
    with _starting:
        if _watch is None or not _watch.is_alive():
            _watch = threading.Thread(target=_watching, name="running-calls", daemon=True)
            _watch.start()


def _write_health() -> None:
    health.write_counts(now=timezone.now())


def _watching() -> None:
    """Runs as long as the process; without running calls it makes no query."""
    pause = threading.Event()
    ends = (end_disconnected, end_refused)
    notes = (save_checkpoints, settle_held_up, _write_health)
    while True:
        pause.wait(WATCH_SECONDS)
        for act in ends + notes:
            try:
                act()
            except DatabaseError:
                log.warning("running_calls_not_checked")
            except Exception:
                # A failure in one call must not end the watch.
                log.exception("watch_failed")
        release_connection()
