"""Sessions of the console: they end after 30 minutes without use and 12 hours in all, and operators end their own."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from accounts.audit import Actor, record
from accounts.models import AuditEvent, ConsoleSession, User
from accounts.models.factors import IDLE_END, LONGEST

# Less often than at each request, which would be a write for every look at a page.
NOTED_EVERY = timedelta(minutes=1)
BROWSER_LENGTH = 200
# Reasons for the end of an operator's session, each with the sentence that is shown to them.
ENDINGS = {
    "operator:session_ended": "{by} ended this session.",
    "operator:factor_reset": "{by} reset your second factor.",
    "operator:set_up_code_used": "a set-up code was used in another browser.",
    "user:disabled": "{by} disabled your account.",
    "user:operator_set": "{by} removed your operator access.",
    "user:one_time_password_set": "{by} set a one-time password for you.",  # nosec B105
    "user:password_set": "your password was changed.",
    "user:tokens_revoked": "{by} ended all your sessions.",
    "operator:signed_out": "you signed out.",
}


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
    """Returns whether a session goes on, and notes its use. The caller has checked the operator's password."""
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


def why_over(*, session_id: str | None, now: datetime) -> str:
    """The reason why a session is over, for its operator: its age, or who ended it, by the audit log."""
    known = [session_id] if session_id else []
    session = ConsoleSession.objects.filter(pk__in=known).first()
    if session is None:
        return "Your session has ended. Sign in again."
    if session.ended_at is None and session.started_at <= now - LONGEST:
        return "You were signed out: a session ends after 12 hours."
    if session.ended_at is None and session.last_used_at <= now - IDLE_END:
        return "You were signed out after 30 minutes without use."
    events = AuditEvent.objects.filter(target_id=str(session.user_id), action__in=ENDINGS)
    told = [
        event
        for event in events.filter(at__gte=session.started_at)
        if (event.after or {}).get("session", str(session.pk)) == str(session.pk)
        # An operator whose roles change keeps the same sessions.
        and not (event.after or {}).get("operator")
    ]
    # One rule writes several at one instant, such as that a disabled person's tokens were revoked.
    ends = [event for event in told if event.at == told[0].at]
    if ends:
        event = min(ends, key=lambda each: [*ENDINGS].index(each.action))
        whose = "you" if event.actor_id == session.user_id else event.actor
        return f"You were signed out: {ENDINGS[event.action].format(by=whose)}"
    return "Your session was ended. Sign in again."


def end_all(*, user_id: UUID, now: datetime, but: str | None = None) -> None:
    """Ends an operator's sessions, ``but`` for one."""
    running = ConsoleSession.objects.filter(user=user_id, ended_at=None)
    (running.exclude(pk=but) if but else running).update(ended_at=now)


def prune(*, now: datetime) -> int:
    """Removes the sessions that are over; what happened in them stands in the audit log."""
    return ConsoleSession.objects.filter(started_at__lte=now - LONGEST).delete()[0]
