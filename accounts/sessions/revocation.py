"""Ending what was granted: one session, or everything a person holds.

Every path here and every path that grants (login, rotation) first locks the user's row, so that nothing
granted at the same moment outlives a revocation.
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


def revoke_all(
    *,
    user_id: UUID,
    by: Actor,
    reason: str,
    now: datetime,
    why: Session.Ended = Session.Ended.REVOKED,
) -> int:
    """The kill switch: every session and token of a user is dead when this returns. Gives the number of sessions ended.

    The epoch moves, so access tokens are refused from the next call on; a login right after this works. It asks
    nothing but the database, so it holds whatever else is away.
    """
    with transaction.atomic():
        user = lock_user(user_id)
        ended = _void([user.pk], why=why, now=now)
        record(
            "user:tokens_revoked",
            by=by,
            now=now,
            target=user.email,
            target_id=user.pk,
            reason=reason,
            after={"sessions_ended": ended},
        )
    return ended


def revoke_everything(*, by: Actor, reason: str, now: datetime) -> tuple[int, int]:
    """Voids every token of everybody, as after a restore. Gives the numbers of people and of sessions ended.

    A restored epoch may come, by this, to be one that was in use between backup and loss. Tokens of then are
    dead all the same: their sessions are ended here, or are unknown because they began after the backup.

    A few hundred people at a time, each under the lock that granting takes, so that nobody's sign-in waits for
    all the others'. It can be begun again where it was interrupted, and so it is audited when it begins and when it
    has ended.
    """
    record("everybody:revocation_begun", by=by, now=now, reason=reason)
    people = sessions = 0
    last: UUID | None = None
    while True:
        with transaction.atomic():
            ids = _lock_people_after(last)
            sessions += _void(ids, why=Session.Ended.REVOKED, now=now)
        if not ids:
            break
        people, last = people + len(ids), ids[-1]
    after = {"people": people, "sessions_ended": sessions}
    record("everybody:tokens_revoked", by=by, now=now, reason=reason, after=after)
    return people, sessions


def _lock_people_after(last: UUID | None) -> list[UUID]:
    people = User.objects.order_by("pk").select_for_update(no_key=True)
    if last is not None:
        people = people.filter(pk__gt=last)
    return list(people.values_list("pk", flat=True)[:PEOPLE_AT_A_TIME])


def _void(ids: list[UUID], *, why: Session.Ended, now: datetime) -> int:
    """Moves the epochs of people whose rows are locked, and ends what they hold; gives the sessions ended."""
    User.objects.filter(pk__in=ids).update(epoch=F("epoch") + 1)
    RefreshToken.objects.filter(user__in=ids).unrevoked().update(revoked_at=now, retry_box=None)
    return Session.objects.filter(user__in=ids, ended_at=None).update(ended_at=now, ended_by=why)


def end_session(
    *, session: Session, why: Session.Ended, by: Actor, now: datetime, reason: str = ""
) -> bool:
    """Ends one session and everything it holds; False where it had ended before."""
    with transaction.atomic():
        lock_user(session.user_id)
        return end_locked_session(session=session, why=why, by=by, now=now, reason=reason)


def end_locked_session(
    *, session: Session, why: Session.Ended, by: Actor, now: datetime, reason: str = ""
) -> bool:
    """The same, for a caller that already holds the lock of the session's user."""
    ended = Session.objects.filter(pk=session.pk, ended_at=None).update(ended_at=now, ended_by=why)
    RefreshToken.objects.filter(session=session).unrevoked().update(revoked_at=now, retry_box=None)
    if ended:
        record(
            "session:ended",
            by=by,
            now=now,
            target=session.user.email,
            target_id=session.pk,
            reason=reason,
            after={"ended_by": str(why)},
        )
    return bool(ended)


def sign_out(*, presented: str, by_address: str | None, request_id: str, now: datetime) -> None:
    """Ends the session of a refresh token, whatever the token: a wrong one ends nothing and says nothing.

    The whole token must be right, or anyone who has seen a record's id could sign others out.
    """
    secret = RefreshSecret.parse(presented)
    token = find(secret) if secret else None
    if token is not None:
        by = Actor(
            name=token.user.email, id=token.user_id, address=by_address, request_id=request_id
        )
        # Whoever was deleted since then has no session left to end.
        with suppress(User.DoesNotExist):
            end_session(session=token.session, why=Session.Ended.LOGOUT, by=by, now=now)


def find(secret: RefreshSecret) -> RefreshToken | None:
    """The record of a token, with its session and user, if the whole token is right."""
    token = RefreshToken.objects.select_related("session", "user").filter(pk=secret.id).first()
    return token if token is not None and secret.matches(token.token_hash) else None


def lock_user(user_id: UUID) -> User:
    """Locks a user's row for the rest of the transaction, without blocking rows that merely refer to it.

    Raises ``User.DoesNotExist``, also for somebody who was deleted while the lock was waited for.
    """
    return User.objects.select_for_update(no_key=True).get(pk=user_id)
