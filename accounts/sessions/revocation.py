"""Revocation: ends one session, or all sessions and tokens of a person.

Revocation, sign-in and rotation all lock the user's row first, so that nothing granted at the same moment outlives
a revocation.
"""

from contextlib import suppress
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import F

from accounts.audit import Actor, record
from accounts.models import RefreshToken, Session, User
from accounts.sessions.refresh_tokens import RefreshSecret

PEOPLE_AT_A_TIME = 200
# The target of an event about all people.
EVERYBODY = "everybody"


def revoke_all(
    *,
    user_id: UUID,
    by: Actor,
    reason: str,
    now: datetime,
    why: Session.Ended = Session.Ended.REVOKED,
) -> int:
    """Ends every session and token of a user at once; returns the number of ended sessions.

    The epoch moves, so access tokens are refused from the next call on; a sign-in right after this works. It depends
    on the database alone.
    """
    with transaction.atomic():
        user = lock_user(user_id)
        ended = _end_all_sessions([user.pk], why=why, now=now)
        after = {"sessions_ended": ended}
        record("user:tokens_revoked", user, by=by, now=now, reason=reason, after=after)
    return ended


def revoke_everything(*, by: Actor, reason: str, now: datetime) -> tuple[int, int]:
    """Revokes every token of everybody, as after a restore; returns the numbers of people and of ended sessions.

    Moving a restored epoch may repeat one that was in use between backup and loss. Tokens of that time are refused
    all the same: their sessions end here, or are unknown because they began after the backup.

    Works in batches, so that no sign-in waits for all of them. It can be run again after an interruption, so both
    its beginning and its end are audited.
    """
    record("everybody:revocation_begun", EVERYBODY, by=by, now=now, reason=reason)
    people = sessions = 0
    last: UUID | None = None
    while True:
        with transaction.atomic():
            ids = _lock_people_after(last)
            sessions += _end_all_sessions(ids, why=Session.Ended.REVOKED, now=now)
        if not ids:
            break
        people, last = people + len(ids), ids[-1]
    after = {"people": people, "sessions_ended": sessions}
    record("everybody:tokens_revoked", EVERYBODY, by=by, now=now, reason=reason, after=after)
    return people, sessions


def _lock_people_after(last: UUID | None) -> list[UUID]:
    people = User.objects.order_by("pk").select_for_update(no_key=True)
    if last is not None:
        people = people.filter(pk__gt=last)
    return list(people.values_list("pk", flat=True)[:PEOPLE_AT_A_TIME])


def _end_all_sessions(ids: list[UUID], *, why: Session.Ended, now: datetime) -> int:
    """Ends all sessions of users whose rows are locked and moves their epochs; returns the number of ended sessions."""
    User.objects.filter(pk__in=ids).update(epoch=F("epoch") + 1)
    RefreshToken.objects.filter(user__in=ids).unrevoked().update(revoked_at=now, retry_box=None)
    return Session.objects.filter(user__in=ids, ended_at=None).update(ended_at=now, ended_by=why)


def end_session(
    *, session: Session, why: Session.Ended, by: Actor, now: datetime, reason: str = ""
) -> bool:
    """Ends one session and its tokens; returns False if it had ended before."""
    with transaction.atomic():
        lock_user(session.user_id)
        return end_locked_session(session=session, why=why, by=by, now=now, reason=reason)


def end_locked_session(
    *, session: Session, why: Session.Ended, by: Actor, now: datetime, reason: str = ""
) -> bool:
    """Does the same for a caller that already holds the lock of the session's user."""
    ended = Session.objects.filter(pk=session.pk, ended_at=None).update(ended_at=now, ended_by=why)
    RefreshToken.objects.filter(session=session).unrevoked().update(revoked_at=now, retry_box=None)
    if ended:
        email, pk, after = session.user.email, session.pk, {"ended_by": str(why)}
        record("session:ended", email, by=by, now=now, target_id=pk, reason=reason, after=after)
    return bool(ended)


def sign_out(*, presented: str, by_address: str | None, request_id: str, now: datetime) -> None:
    """Ends the session of a refresh token; a wrong token is ignored without an error.

    The whole token is verified: a record's id alone must not sign anybody out.
    """
    secret = RefreshSecret.parse(presented)
    token = find(secret) if secret else None
    if token is not None:
        by = Actor(
            name=token.user.email, id=token.user_id, address=by_address, request_id=request_id
        )
        # A user deleted meanwhile has no session left to end.
        with suppress(User.DoesNotExist):
            end_session(session=token.session, why=Session.Ended.LOGOUT, by=by, now=now)


def find(secret: RefreshSecret) -> RefreshToken | None:
    """The record of a token, with its session and user, or None for a wrong token."""
    token = RefreshToken.objects.select_related("session", "user").filter(pk=secret.id).first()
    return token if token is not None and secret.matches(token.token_hash) else None


def lock_user(user_id: UUID) -> User:
    """Locks a user's row for the rest of the transaction, without blocking rows that only refer to it.

    Raises ``User.DoesNotExist``, also for a user who is deleted while this waits for the lock.
    """
    return User.objects.select_for_update(no_key=True).get(pk=user_id)
