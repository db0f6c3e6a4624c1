"""Sessions of the console: they end after 30 minutes without use and 12 hours in all, and operators end their own."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from accounts.audit import Actor, record
from accounts.models import ConsoleSession, User
from accounts.models.factors import LONGEST

# Less often than at each request, which would be a write for every look at a page.
NOTED_EVERY = timedelta(minutes=1)
BROWSER_LENGTH = 200


def start(*, user: User, address: str | None, browser: str, now: datetime) -> ConsoleSession:
    return ConsoleSession.objects.create(
        user=user,
        epoch=user.epoch,
        browser=browser[:BROWSER_LENGTH],
        started_at=now,
        started_from=address,
        last_used_at=now,
    )


def goes_on(*, session_id: str, user: User, now: datetime) -> bool:
    """Whether a session goes on, and notes its use. Its operator has been checked to have the present password."""
    rows = ConsoleSession.objects.filter(pk=session_id, user=user)
    session = rows.in_time(at=now).first()
    if session is None:
        return False
    # The epoch differs after a change of the operator's own password, which keeps this browser signed in.
    if session.epoch != user.epoch or session.last_used_at < now - NOTED_EVERY:
        rows.update(last_used_at=now, epoch=user.epoch)
    return True


def end(*, session_id: UUID, user: User, by: Actor, now: datetime) -> bool:
    """Ends a session of this operator; returns False if there is none."""
    with transaction.atomic():
        rows = ConsoleSession.objects.live(at=now).filter(pk=session_id, user=user)
        ended = rows.update(ended_at=now)
        if ended:
            after = {"session": str(session_id)}
            record("operator:session_ended", user, by=by, now=now, after=after)
    return bool(ended)


def end_all(*, user_id: UUID, now: datetime, but: str | None = None) -> None:
    """Ends an operator's sessions, ``but`` for one."""
    running = ConsoleSession.objects.filter(user=user_id, ended_at=None)
    (running.exclude(pk=but) if but else running).update(ended_at=now)


def prune(*, now: datetime) -> int:
    """Removes the sessions that are over; what happened in them stands in the audit log."""
    return ConsoleSession.objects.filter(started_at__lte=now - LONGEST).delete()[0]
