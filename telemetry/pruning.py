"""Removing events that were received longer ago than they are kept."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection

from telemetry.models import Event

# Some tens of milliseconds each.
BATCH = 5_000
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How many events were removed, or would be, and from when on they are kept."""

    events: int
    kept_from: datetime


def prune(*, now: datetime, dry_run: bool = False, batch: int = BATCH) -> Pruned:
    """Removes events older than ``TELEMETRY_RETENTION_DAYS``, some at a time, each time in its own transaction.

    Nothing waits for it: nobody else changes an event. Two at once take different events; what one that died had
    locked is there for the next.
    """
    kept_from = now - timedelta(days=settings.TELEMETRY_RETENTION_DAYS)
    if dry_run:
        return Pruned(
            events=Event.objects.received_before(kept_from).order_by().count(), kept_from=kept_from
        )
    removed, since = 0, _BEGINNING
    while True:
        number, last = _remove(since=since, before=kept_from, batch=batch)
        removed += number
        if number < batch or last is None:
            return Pruned(events=removed, kept_from=kept_from)
        # From here on, so that no batch has to step over what those before it have removed.
        since = last


_REMOVE = """
WITH old AS MATERIALIZED (
    SELECT ctid FROM telemetry_event WHERE received_at >= %s AND received_at < %s
    ORDER BY received_at LIMIT %s FOR UPDATE SKIP LOCKED
), gone AS (
    -- By its place, which cannot change while it is locked: in a table of middling size a join would read all of it.
    DELETE FROM telemetry_event WHERE ctid = ANY (ARRAY(SELECT ctid FROM old)) RETURNING received_at
)
SELECT count(*), max(received_at) FROM gone
"""


def _remove(*, since: datetime, before: datetime, batch: int) -> tuple[int, datetime | None]:
    """How many of the oldest were removed, and when the latest of them had been received."""
    with connection.cursor() as cursor:
        cursor.execute(_REMOVE, [since, before, batch])
        number, last = cursor.fetchone()
        return number, last
