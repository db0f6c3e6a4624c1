"""Lifetimes: a session ends after ``SESSION_DAYS``, a refresh token after 30 days at most."""

from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction

from accounts.models import Session

SESSIONS_AT_A_TIME = 500


def session_end(now: datetime) -> datetime | None:
    """Returns the end of a session that begins now; None for no end."""
    days = settings.SESSION_DAYS
    return now + timedelta(days=days) if days else None


def token_end(session_end: datetime | None, *, now: datetime) -> datetime:
    """Returns the end of a refresh token: in 30 days, or with its session if that ends earlier."""
    end: datetime = now + settings.REFRESH_LIFETIME
    return min(end, session_end) if session_end else end


def set_missing_ends(*, now: datetime, dry_run: bool = False) -> int:
    """Gives sessions without an end that of a session that begins now; returns their number.

    They are from before ``SESSION_DAYS`` had a value. Counted from their own beginning, many people would have to sign
    in again at the moment of the upgrade.
    """
    end = session_end(now)
    if end is None:
        return 0
    endless = Session.objects.filter(ended_at=None, expires_at=None)
    if dry_run:
        return endless.count()
    changed, last = 0, None
    while batch := _set_ends(last, end):
        changed, last = changed + len(batch), batch[-1]
    return changed


def _set_ends(after: UUID | None, end: datetime) -> list[UUID]:
    """Changes a batch in the order of the ids; a session in use is left for the next night, so nothing waits."""
    rows = Session.objects.filter(ended_at=None, expires_at=None).order_by("pk")
    with transaction.atomic():
        free = rows.filter(pk__gt=after) if after else rows
        locked = free.select_for_update(skip_locked=True, no_key=True)
        ids = list(locked.values_list("pk", flat=True)[:SESSIONS_AT_A_TIME])
        Session.objects.filter(pk__in=ids).update(expires_at=end)
    return ids
