"""Removing what has been kept long enough, in batches that lock little; two at once do each other no harm."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q

from accounts.audit import Actor, record
from accounts.models import AuditEvent, RefreshToken, Session, User
from config.problems import instant

EVENTS_AT_A_TIME = 2000
SESSIONS_AT_A_TIME = 100
# How long a session that is over can still be looked at.
OVER_KEPT = timedelta(days=30)


def prune_audit_log(*, by: Actor, now: datetime, dry_run: bool = False) -> int:
    """Removes audit events older than ``AUDIT_RETENTION_DAYS``; gives how many, or would be.

    That it was done is an event itself, also where it was broken off: each batch is a transaction of its own, so
    that nobody who writes waits for all of them.
    """
    before = now - timedelta(days=settings.AUDIT_RETENTION_DAYS)
    if dry_run:
        return AuditEvent.objects.filter(at__lt=before).count()
    removed = 0
    try:
        while batch := _remove_events(before):
            removed += batch
    finally:
        if removed:
            after = {"events": removed, "older_than": instant(before)}
            record("audit:pruned", by=by, now=now, after=after)
    return removed


def prune_refresh_tokens(*, now: datetime, dry_run: bool = False) -> tuple[int, int]:
    """Removes sessions that ended or expired 30 days ago, with their tokens; gives how many of each, or would be.

    A replaced token stays as long as its session lives, because presenting it again must still be noticed.
    """
    if dry_run:
        over = Session.objects.filter(over_since(now - OVER_KEPT)).order_by()
        return over.count(), RefreshToken.objects.filter(session__in=over).count()
    sessions = tokens = 0
    while (batch := _remove_sessions(now - OVER_KEPT))[0]:
        sessions += batch[0]
        tokens += batch[1]
    return sessions, tokens


def over_since(at: datetime) -> Q:
    """Sessions that had ended by then, or had no token left to go on with."""
    unexpired = RefreshToken.objects.filter(session=OuterRef("pk"), expires_at__gte=at)
    return Q(ended_at__lt=at) | Q(~Exists(unexpired), started_at__lt=at)


def _remove_events(before: datetime) -> int:
    with transaction.atomic():
        with connection.cursor() as cursor:
            # What the trigger asks for before it lets an event go; it ends with the transaction.
            cursor.execute("SET LOCAL accounts.pruning_audit = 'on'")
        old = AuditEvent.objects.filter(at__lt=before).order_by("at", "id")
        ids = old.select_for_update(skip_locked=True).values_list("pk", flat=True)
        removed, _ = AuditEvent.objects.filter(pk__in=list(ids[:EVENTS_AT_A_TIME])).delete()
    return removed


def _remove_sessions(over: datetime) -> tuple[int, int]:
    with transaction.atomic():
        found = dict(
            Session.objects.filter(over_since(over))
            .order_by("started_at", "id")
            .values_list("pk", "user_id")[:SESSIONS_AT_A_TIME]
        )
        # The lock that everything takes which grants or revokes; who is busy is left for the next time.
        locked = set(
            User.objects.filter(pk__in=set(found.values()))
            .order_by("pk")
            .select_for_update(no_key=True, skip_locked=True)
            .values_list("pk", flat=True)
        )
        ids = [session for session, user in found.items() if user in locked]
        with connection.cursor() as cursor:
            # By itself, because the ORM would load a long chain to take its links apart.
            cursor.execute("DELETE FROM accounts_refreshtoken WHERE session_id = ANY(%s)", [ids])
            tokens = cursor.rowcount
        Session.objects.filter(pk__in=ids).delete()
    return len(ids), tokens
