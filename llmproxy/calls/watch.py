"""Watches the model calls that this process relays, with one thread and a few queries for all of them together.

Every few seconds the watch cuts calls whose caller has lost access (revocation, end of the session, suspension, an
operator's stop; the stream ends with the reason) and streams whose client has disconnected. Whole answers whose client
has disconnected are read to their end, a few at once for each person. The watch also saves checkpoints of the running
calls' costs, in case this process dies.
"""

import logging
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import Error as DatabaseError
from django.db.models import BooleanField, ExpressionWrapper, F, Q
from django.db.models.functions import Now
from django.utils import timezone

from accounts.models import Session, User
from accounts.sessions.authentication import AccessRevoked
from config.api.problems import Problem
from config.db.connections import release_connection
from config.http.exchange import Exchange
from licensing.callers import Caller
from licensing.models import Standing
from licensing.permissions import LicenceSuspended, NotEntitled
from llmproxy.calls.admission import Call, End
from llmproxy.catalogue import health
from llmproxy.keys.personal_keys import ENDED, NO_KEYS
from llmproxy.models import PersonalKey
from usage.caps import SoFar, begin_background_read, checkpoint
from usage.stops import ModelCallsStopped, told_to_end

log = logging.getLogger(__name__)

WATCH_SECONDS = 3.0
# Whole answers of one person that are read at once after their client has disconnected.
MOST_BACKGROUND_READS = 4
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
    exchange: Exchange
    began: float = field(default_factory=time.monotonic)
    saved: SoFar | None = None
    saved_at: float = 0.0
    cut_at: float | None = None

    @property
    def is_background_read(self) -> bool:
        return not self.call.request.stream and self.call.disconnected and self.cut_at is None

    def cut(self) -> None:
        self.call.cut = True
        self.exchange.close()
        self.cut_at = self.cut_at or time.monotonic()


_calls: dict[UUID, _WatchedCall] = {}
_starting = threading.Lock()
_watch: threading.Thread | None = None


def register(call: Call, exchange: Exchange) -> None:
    """Watches a call until it is forgotten; later attempts at it replace the exchange."""
    watched = _calls.setdefault(call.id, _WatchedCall(call, exchange))
    watched.exchange = exchange
    if call.cut:
        # The watch may have cut the exchange before this one.
        exchange.close()
    _start()


def forget(call: Call) -> None:
    _calls.pop(call.id, None)


def end_refused() -> None:
    """Ends every running call whose caller has lost access."""
    calls = list(_calls.values())
    if not calls:
        return
    standings = _standings([each.call.caller for each in calls])
    stopped = told_to_end(record_ids=[each.call.id for each in calls], now=timezone.now())
    for each in calls:
        reason = _reason(each.call, standings.get(_held_by(each.call.caller)))
        if reason is None and each.call.id in stopped:
            reason = ModelCallsStopped()
        if reason is not None:
            each.call.stopped = each.call.stopped or reason
            each.cut()


def end_disconnected() -> None:
    """Ends every running stream whose client has disconnected, and whole answers beyond a few for each person.

    A stream that only awaits its usage ends a round later.
    """
    whole: list[_WatchedCall] = []
    for each in _in_batches():
        call = each.call
        if each.cut_at is not None or each.is_background_read or not call.is_disconnected():
            continue
        if not call.request.stream:
            whole.append(each)
            continue
        goes_on = call.awaits_usage() and not call.disconnected
        call.disconnected = True
        if not goes_on:
            each.cut()
    # Last, because only these need the database: while it is away, they are read on.
    for each in whole:
        goes_on = _may_be_read_on(each.call)
        each.call.disconnected = True
        if not goes_on:
            each.cut()


def _may_be_read_on(call: Call) -> bool:
    try:
        return begin_background_read(
            record_id=call.id,
            user_id=call.caller.user_id,
            most=MOST_BACKGROUND_READS,
            now=timezone.now(),
        )
    except User.DoesNotExist:
        return False


def end_all() -> None:
    """Ends every running call, because this process ends."""
    for each in list(_calls.values()):
        each.cut()


def save_checkpoints() -> None:
    """Saves the costs of the running calls that have changed."""
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


def note_moves() -> None:
    """Notes in the ledger to whom running calls went on while the database was away."""
    for each in _in_batches():
        each.call.moves.make()


def settle_held_up() -> None:
    """Settles ended calls whose relay is blocked by a client that does not read."""
    now = time.monotonic()
    for each in list(_calls.values()):
        if each.cut_at is None and now - each.began > settings.LLM_MAX_SECONDS + HELD_UP_SECONDS:
            each.cut()
        if each.cut_at is not None and now - each.cut_at > HELD_UP_SECONDS:
            each.call.settle(_end_of(each.call))
            forget(each.call)


def _in_batches() -> Iterator[_WatchedCall]:
    """All running calls; other greenlets run between the batches."""
    for number, each in enumerate(list(_calls.values()), 1):
        yield each
        if number % BATCH == 0:
            time.sleep(0)


def _end_of(call: Call) -> End:
    if call.stopped is not None:
        return End.STOPPED
    return End.CLIENT_GONE if call.disconnected else End.TIMEOUT


class _Standing(NamedTuple):
    """A session's or personal key's access now."""

    epoch: int
    is_active: bool
    is_over: bool
    licence: str | None
    # Whether the plan has personal keys, where it is one.
    is_allowed: bool = True

    @property
    def has_access(self) -> bool:
        return self.is_active and not self.is_over and self.licence is not None


def _held_by(caller: Caller) -> UUID | None:
    """The id of the session or personal key of a caller."""
    return caller.session_id if caller.key is None else caller.key.id


def _reason(call: Call, now: _Standing | None) -> Problem | None:
    """The reason to end a call; None while its caller has access."""
    if now is None or now.epoch != call.caller.epoch or not now.has_access:
        return AccessRevoked(None if call.caller.key is None else ENDED)
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
    notes = (save_checkpoints, note_moves, settle_held_up, _write_health)
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
