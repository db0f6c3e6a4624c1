"""The log of refusals: what the API refused whom in the last two weeks, for operators.

A refusal is noted in this process and written within seconds, in the background, so that a flood costs neither a query
nor a wait. What cannot be written waits; what is more than may wait is dropped.
"""

import logging
import threading
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import InterfaceError, InternalError, OperationalError, connection, transaction
from psycopg.types.json import Jsonb

from config.platform.db.connections import release_connection
from config.platform.edge.ratelimits.limits import network_of
from config.platform.edge.request_log import Refused
from config.platform.problems.problem import Problem
from usage.models import Refusal
from usage.models.refusals import MOST_IDS

log = logging.getLogger(__name__)

KEPT = timedelta(days=14)
MOST_ROWS = 1_000_000
# Rows that wait in one process, and networks that have rows of their own in a minute.
MOST_WAITING = 2_000
MOST_NETWORKS = 50
EVERY_SECONDS = 1.5
BATCH = 5_000
MODEL_CALLS = "/v1/llm/"
# Members of a refusal with the requested numbers, and headers with the remaining ones.
NUMBERS = ("cap", "used", "reserved", "requested", "remaining", "dimension", "limit")
LEFT = {"remaining_month": "X-Tokens-Remaining-Month", "remaining_day": "X-Tokens-Remaining-Day"}

# Rows to be written, by what makes them one.
_waiting: dict[tuple[Any, ...], Refusal] = {}
# Those with rows of their own in the latest minute.
_networks: dict[datetime, set[str]] = {}


def note(refused: Refused) -> None:
    """Takes note of a refused request, if it concerns a person's work."""
    problem = refused.problem
    person = problem.about.get("person") or refused.user
    user_id = person if isinstance(person, UUID) else None
    if not _concerns_work(problem, refused.path, is_known=user_id is not None):
        return
    minute = refused.at.replace(second=0, microsecond=0)
    address = None if user_id else _network(refused.address, minute)
    model = problem.about.get("model", "")
    kind = (minute, user_id, problem.code, model, address)
    row = _waiting.get(kind)
    if row is None:
        if len(_waiting) >= MOST_WAITING:
            return
        row = _waiting[kind] = Refusal(
            minute=minute, user_id=user_id, code=problem.code, address=address, number=0
        )
        row.model, row.status = model, problem.status
    row.number += 1
    row.last_at, row.route = refused.at, "" if refused.route == "-" else refused.route[:80]
    told = problem.about | problem.members
    row.numbers = {name: told[name] for name in NUMBERS if name in told} | {
        name: problem.headers[head] for name, head in LEFT.items() if head in problem.headers
    }
    if "cap" in told or "requested" in told:
        # The sentence of a cap has numbers, and nothing of the request.
        row.numbers["detail"] = problem.detail
    if len(row.request_ids) < MOST_IDS:
        row.request_ids.append(refused.request_id)


def flush() -> int:
    """Writes what waits; returns how many rows. Raises database errors; what a database does not take now waits on."""
    batch = [_waiting.popitem() for _ in range(len(_waiting))]
    # In one order, so that no two processes wait for each other.
    batch.sort(key=str)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.executemany(_KEEP, [_values(row) for _, row in batch])
    except (OperationalError, InterfaceError, InternalError):
        for kind, row in batch:
            if kind in _waiting:
                _waiting[kind].number += row.number
            elif len(_waiting) < MOST_WAITING:
                _waiting[kind] = row
        raise
    return len(batch)


def start() -> threading.Thread:
    """Writes for the life of this process what it notes."""
    thread = threading.Thread(target=_write_for_ever, name="refusals", daemon=True)
    thread.start()
    return thread


def finish() -> None:
    """Writes what waits, or says that it is lost for now."""
    try:
        flush()
    except Exception:
        log.warning("refusals_not_written", exc_info=True)
    release_connection()


def prune(*, now: datetime, dry_run: bool = False) -> int:
    """Removes refusals older than two weeks, and the oldest beyond a million; returns how many."""
    newest = Refusal.objects.values_list("minute", flat=True)
    beyond = [each + timedelta(minutes=1) for each in newest[MOST_ROWS : MOST_ROWS + 1]]
    over = Refusal.objects.filter(minute__lt=max([now - KEPT, *beyond])).order_by("minute")
    removed = over.count() if dry_run else 0
    while not dry_run and (batch := list(over.values_list("pk", flat=True)[:BATCH])):
        removed += Refusal.objects.filter(pk__in=batch).delete()[0]
    return removed


_KEEP = f"""
INSERT INTO usage_refusal AS kept (
    minute, user_id, client_id, address, code, status, route, model, number, last_at, request_ids, numbers
)
SELECT %s, person.id, person.client_id, %s::inet, %s, %s, %s, %s, %s, %s, %s::varchar[], %s
FROM (SELECT %s::uuid AS id) AS whose LEFT JOIN accounts_user AS person ON person.id = whose.id
WHERE person.id IS NOT NULL OR whose.id IS NULL
ON CONFLICT (user_id, minute, code, model, address) DO UPDATE SET
    number = kept.number + excluded.number, route = excluded.route, numbers = excluded.numbers,
    last_at = GREATEST(kept.last_at, excluded.last_at),
    request_ids = (kept.request_ids || excluded.request_ids)[1:{MOST_IDS}]
"""  # nosec B608 # noqa: S608 - a number of this project


def _values(row: Refusal) -> tuple[Any, ...]:
    kind = row.minute, row.address, row.code, row.status, row.route, row.model
    return (*kind, row.number, row.last_at, row.request_ids, Jsonb(row.numbers), row.user_id)


def _concerns_work(problem: Problem, path: str, *, is_known: bool) -> bool:
    status = problem.status
    # Pipelines, which are nobody, publish below internal.
    if not path.startswith("/v1/") or path.startswith("/v1/internal/"):
        return False
    if not is_known:
        # Of strangers: a sign-in or a token that is refused, and a limit of their address.
        return status in {401, 429} and problem.code != "not_authenticated"
    return 400 <= status < 500 or (502 <= status <= 504 and path.startswith(MODEL_CALLS))


def _network(address: str, minute: datetime) -> str | None:
    """The network of an address; None once so many were refused in this minute that the others share a row."""
    if minute not in _networks:
        _networks.clear()
    known, network = _networks.setdefault(minute, set()), network_of(address)
    if network not in known and len(known) >= MOST_NETWORKS:
        return None
    known.add(network)
    return network


def _write_for_ever() -> None:
    pause = threading.Event()
    while True:
        pause.wait(EVERY_SECONDS)
        if _waiting:
            finish()
