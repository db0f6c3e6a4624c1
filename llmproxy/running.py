"""The calls this process is relaying, and the watch that ends those whose caller may go on no longer.

One query every few seconds for all of them together, however many there are: a revocation, the end of a
session or of a client's licence cuts the exchange with the provider, and the relay says why in the stream.
"""

import logging
import threading
from typing import NamedTuple
from uuid import UUID

from django.db import Error as DatabaseError
from django.db.models import F

from accounts.authentication import AccessRevoked
from accounts.models import Session
from config.database import release_connection
from config.problems import Problem
from licensing.models import Standing
from licensing.permissions import LicenceSuspended
from llmproxy.calls import Call
from llmproxy.exchange import Exchange

log = logging.getLogger(__name__)

WATCH_SECONDS = 3.0


class _Running(NamedTuple):
    call: Call
    exchange: Exchange


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
    for each in calls:
        reason = _reason(each.call, states.get(each.call.caller.session_id))
        if reason is not None:
            each.call.stopped = reason
            each.exchange.close()


def _reason(call: Call, state: tuple[int, bool, bool, str | None] | None) -> Problem | None:
    if state is None:
        return AccessRevoked()
    epoch, is_active, has_ended, status = state
    if epoch != call.caller.epoch or not is_active or has_ended or status is None:
        return AccessRevoked()
    return LicenceSuspended() if status == Standing.SUSPENDED else None


def _states(sessions: set[UUID]) -> dict[UUID, tuple[int, bool, bool, str | None]]:
    rows = Session.objects.filter(pk__in=sessions).values_list(
        "pk", "user__epoch", "user__is_active", F("ended_at"), "user__client__licence__status"
    )
    return {
        pk: (epoch, active, ended is not None, status) for pk, epoch, active, ended, status in rows
    }


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
        try:
            look()
        except DatabaseError:
            log.warning("running_calls_not_checked")
        finally:
            release_connection()
