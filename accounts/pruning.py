"""Removing what has been kept long enough, in batches that lock little; two at once do each other no harm.

Each batch begins where the one before it ended, and by an index in which what is old comes first: a night takes as
long as what it removes, however much is kept.
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
from accounts.models import AuditEvent, RefreshToken, Session, User
from config.problems import instant

EVENTS_AT_A_TIME = 2000
SESSIONS_AT_A_TIME = 100
# How long a session that is over can still be looked at.
OVER_KEPT = timedelta(days=30)
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def prune_audit_log(*, by: Actor, now: datetime, dry_run: bool = False) -> int:
    """Removes audit events older than ``AUDIT_RETENTION_DAYS``; gives how many, or would be.

    That it was done is an event itself, also where it was broken off: each batch is a transaction of its own, so
    that nobody who writes waits for all of them.
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
    """Removes sessions that ended or expired 30 days ago, with their tokens; gives how many of each, or would be.

    A replaced token stays as long as its session lives, because presenting it again must still be noticed.
    """
    over = now - OVER_KEPT
    sessions = tokens = 0
    for batch in _sessions_over(over):
        removed = _count(batch) if dry_run else _remove_sessions(batch)
        sessions += removed[0]
        tokens += removed[1]
    return sessions, tokens


def prune_console_sessions(*, now: datetime, dry_run: bool = False) -> int:
    """Removes expired sessions of the console and the account pages; gives how many, or would be."""
    expired = PageSession.objects.filter(expire_date__lt=now)
    if dry_run:
        return expired.count()
    removed, keys = 0, expired.order_by("expire_date").values_list("pk", flat=True)
    while batch := list(keys[:SESSIONS_AT_A_TIME]):
        # Again by their time: somebody may have come in by one of them.
        removed += expired.filter(pk__in=batch).delete()[0]
    return removed


_REMOVE_EVENTS = """
WITH old AS MATERIALIZED (
    SELECT ctid FROM accounts_auditevent WHERE at >= %s AND at < %s ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED
), gone AS (
    -- By its place, which cannot change while it is locked: no other index is asked for it.
    DELETE FROM accounts_auditevent WHERE ctid = ANY (ARRAY(SELECT ctid FROM old)) RETURNING at
)
SELECT count(*), max(at) FROM gone
"""


def _remove_events(*, since: datetime, before: datetime) -> tuple[int, datetime | None]:
    """How many of the oldest were removed, and when the latest of them had happened."""
    with transaction.atomic(), connection.cursor() as cursor:
        # What the trigger asks for before it lets an event go; it ends with the transaction.
        cursor.execute("SET LOCAL accounts.pruning_audit = 'on'")
        cursor.execute(_REMOVE_EVENTS, [since, before, EVENTS_AT_A_TIME])
        number, last = cursor.fetchone()
        return number, last


class _Over(NamedTuple):
    """A session that is over, and the place in an index at which that was found."""

    at: datetime
    place: UUID
    session_id: UUID
    user_id: UUID


_Find = Callable[[datetime, _Over | None], list[_Over]]


def _sessions_over(at: datetime) -> Iterator[Sequence[_Over]]:
    """Those that had ended by then, and then those whose last token had expired by then; some at a time."""
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
    """By the last of a chain, which expires last. One that was revoked belongs to a session that has ended."""
    last_ones = RefreshToken.objects.filter(revoked_at=None, replaced_at=None, expires_at__lt=at)
    rows = last_ones.filter(_behind("expires_at", after)).order_by("expires_at", "id")
    found = rows.values_list("expires_at", "id", "session_id", "user_id")
    return [_Over(*row) for row in found[:SESSIONS_AT_A_TIME]]


def _behind(column: str, after: _Over | None) -> Q:
    if after is None:
        return Q()
    # The first condition says nothing new, but it is what the index is entered by.
    return Q(**{f"{column}__gte": after.at}) & (
        Q(**{f"{column}__gt": after.at}) | Q(id__gt=after.place)
    )


def _count(batch: Sequence[_Over]) -> tuple[int, int]:
    ids = [each.session_id for each in batch]
    return len(ids), RefreshToken.objects.filter(session__in=ids).count()


def _remove_sessions(batch: Sequence[_Over]) -> tuple[int, int]:
    with transaction.atomic():
        # The lock that everything takes which grants or revokes; who is busy is left for the next time.
        locked = set(
            User.objects.filter(pk__in={each.user_id for each in batch})
            .order_by("pk")
            .select_for_update(no_key=True, skip_locked=True)
            .values_list("pk", flat=True)
        )
        ids = [each.session_id for each in batch if each.user_id in locked]
        with connection.cursor() as cursor:
            # By itself, because the ORM would load a long chain to take its links apart.
            cursor.execute("DELETE FROM accounts_refreshtoken WHERE session_id = ANY(%s)", [ids])
            tokens = cursor.rowcount
        # Another run may have been quicker.
        _, removed = Session.objects.filter(pk__in=ids).delete()
    return removed.get("accounts.Session", 0), tokens
