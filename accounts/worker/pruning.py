"""Prunes audit events and sessions whose retention time is over, in small batches; two runs at once are safe.

Each batch starts where the one before it ended, along an index with the oldest first: the time depends on the number
of rows removed, not on the size of the table.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.contrib.sessions.models import Session as PageSession
from django.db import connection, transaction
from django.db.models import Q

from accounts.audit import Actor, record
from accounts.factors import console_sessions
from accounts.models import AuditEvent, RefreshToken, Session, User
from config.platform.problems.problem import instant

EVENTS_AT_A_TIME = 2000
SESSIONS_AT_A_TIME = 100
# Operators can look at a session for this long after its end.
OVER_KEPT = timedelta(days=30)
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def prune_audit_log(*, by: Actor, now: datetime, dry_run: bool = False) -> int:
    """Removes audit events older than ``AUDIT_RETENTION_DAYS``; returns their number.

    Each batch is a transaction, so that no writer waits for all of them. The pruning is an event itself, also if it
    is interrupted.
    """
    before = now - timedelta(days=settings.AUDIT_RETENTION_DAYS)
    if dry_run:
        return AuditEvent.objects.filter(at__lt=before).count()
    removed, since = 0, _BEGINNING
    try:
        while True:
            batch, last = _remove_events(since=since, before=before)
            removed += batch
            if batch < EVENTS_AT_A_TIME or last is None:
                break
            since = last
    finally:
        if removed:
            after = {"events": removed, "older_than": instant(before)}
            record("audit:pruned", by=by, now=now, after=after)
    return removed


def prune_refresh_tokens(*, now: datetime, dry_run: bool = False) -> tuple[int, int]:
    """Removes sessions that ended or expired 30 days ago, with their tokens; returns the numbers of both.

    A replaced token stays as long as its session lives, because its reuse must still be noticed.
    """
    over = now - OVER_KEPT
    sessions = tokens = 0
    for batch in _sessions_over(over):
        removed = _count(batch) if dry_run else _remove_sessions(batch)
        sessions += removed[0]
        tokens += removed[1]
    return sessions, tokens


def prune_console_sessions(*, now: datetime, dry_run: bool = False) -> int:
    """Removes expired sessions of the console and the account pages; returns their number."""
    expired = PageSession.objects.filter(expire_date__lt=now)
    if dry_run:
        return expired.count()
    console_sessions.prune(now=now)
    removed, keys = 0, expired.order_by("expire_date").values_list("pk", flat=True)
    while batch := list(keys[:SESSIONS_AT_A_TIME]):
        # Filtered by time again: a sign-in may have renewed one of them.
        removed += expired.filter(pk__in=batch).delete()[0]
    return removed


def _remove_events(*, since: datetime, before: datetime) -> tuple[int, datetime | None]:
    """Removes a batch of the oldest events; returns their number and the time of the latest.

    By a function of the table's owner: the service's role may delete no events.
    """
    with connection.cursor() as cursor:
        cursor.callproc("accounts_prune_audit", [since, before, EVENTS_AT_A_TIME])
        removed, latest = cursor.fetchone() or (0, None)
    return removed, latest


class _Over(NamedTuple):
    """A session that is over, and its position (time and id) in the index."""

    at: datetime
    place: UUID
    session_id: UUID
    user_id: UUID


_Find = Callable[[datetime, _Over | None], list[_Over]]


def _sessions_over(at: datetime) -> Iterator[Sequence[_Over]]:
    """Batches of the sessions that had ended by then, then of those whose last token had expired."""
    finds: tuple[_Find, ...] = (_ended, _expired)
    for find in finds:
        last: _Over | None = None
        while batch := find(at, last):
            yield batch
            last = batch[-1]


def _ended(at: datetime, after: _Over | None) -> list[_Over]:
    rows = Session.objects.filter(_behind("ended_at", after), ended_at__lt=at)
    found = rows.order_by("ended_at", "id").values_list("ended_at", "id", "user_id")
    return [
        _Over(ended_at, session_id, session_id, user_id)
        for ended_at, session_id, user_id in found[:SESSIONS_AT_A_TIME]
        if ended_at is not None
    ]


def _expired(at: datetime, after: _Over | None) -> list[_Over]:
    """Finds sessions by the last token of a chain, which expires last. A revoked one belongs to an ended session."""
    last_ones = RefreshToken.objects.filter(revoked_at=None, replaced_at=None, expires_at__lt=at)
    rows = last_ones.filter(_behind("expires_at", after)).order_by("expires_at", "id")
    found = rows.values_list("expires_at", "id", "session_id", "user_id")
    return [_Over(*row) for row in found[:SESSIONS_AT_A_TIME]]


def _behind(column: str, after: _Over | None) -> Q:
    if after is None:
        return Q()
    # The first condition is redundant, but it is the one that enters the index.
    return Q(**{f"{column}__gte": after.at}) & (
        Q(**{f"{column}__gt": after.at}) | Q(id__gt=after.place)
    )


def _count(batch: Sequence[_Over]) -> tuple[int, int]:
    ids = [each.session_id for each in batch]
    return len(ids), RefreshToken.objects.filter(session__in=ids).count()


def _remove_sessions(batch: Sequence[_Over]) -> tuple[int, int]:
    with transaction.atomic():
        # Everything that grants or revokes takes this lock; a locked user is left for the next run.
        locked = set(
            User.objects.filter(pk__in={each.user_id for each in batch})
            .order_by("pk")
            .select_for_update(no_key=True, skip_locked=True)
            .values_list("pk", flat=True)
        )
        ids = [each.session_id for each in batch if each.user_id in locked]
        # Another run may have been quicker.
        _, removed = Session.objects.filter(pk__in=ids).delete()
    return removed.get("accounts.Session", 0), removed.get("accounts.RefreshToken", 0)
