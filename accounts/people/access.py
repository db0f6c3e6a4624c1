"""Rules that take a person's access and give it back. A loss of access takes effect at once."""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import ProtectedError

from accounts.audit import Actor, check_reason, record
from accounts.connections.disconnecting import disconnect_all
from accounts.models import Client, Session, User
from accounts.people.users import described, lock_person
from accounts.rights import check_not_oneself, check_owner_left, check_touch
from accounts.seats import within_seats
from accounts.sessions.revocation import lock_user, revoke_all
from config.platform.problems.problem import InvalidRequest


class StillNeeded(InvalidRequest):
    """A person cannot be deleted while rows that must stay refer to them."""

    default_detail = (
        "Records that must be kept, such as usage in the ledger, refer to this "
        "person. Disable or erase the person instead."
    )


class MovedMeanwhile(InvalidRequest):
    """A person's client changed between the look at its seats and the lock of the person."""

    default_detail = "This person was just moved to another client. Please try again."


def disable(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> int:
    """Ends a person's access until :func:`enable` and all connections; returns the number of ended sessions."""
    check_not_oneself(user_id, by)
    check_reason(reason)
    with transaction.atomic():
        _set_enabled(user_id, enabled=False, reason=reason, by=by, now=now)
        disconnect_all(user_id=user_id, by=by, now=now, reason=reason)
        why = Session.Ended.DISABLED
        return revoke_all(user_id=user_id, by=by, reason=reason, why=why, now=now)


def enable(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> None:
    """Lets a disabled person sign in again, with the same password.

    Raises ``SeatsExhausted``, and ``MovedMeanwhile`` if another operator moves them at the same time.
    """
    check_reason(reason)
    client = Client.objects.filter(users=user_id).first()
    with within_seats(client, by=by, now=now):
        # The lock of a client keeps nobody from leaving it.
        if lock_person(user_id).client_id != (client and client.pk):
            raise MovedMeanwhile
        _set_enabled(user_id, enabled=True, reason=reason, by=by, now=now)


def delete_user(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> None:
    """Deletes a person with sessions and tokens. Raises ``StillNeeded`` for a person with usage."""
    check_not_oneself(user_id, by)
    check_reason(reason)
    with transaction.atomic():
        user = lock_user(user_id)
        check_touch(user, by=by)
        check_owner_left(user)
        before = described(user)
        disconnect_all(user_id=user_id, by=by, now=now, reason=reason)
        try:
            user.delete()
        except ProtectedError:
            raise StillNeeded from None
        email = user.email
        record(
            "user:deleted", email, by=by, now=now, target_id=user_id, reason=reason, before=before
        )


def _set_enabled(user_id: UUID, *, enabled: bool, reason: str, by: Actor, now: datetime) -> None:
    user = lock_person(user_id)
    check_touch(user, by=by)
    if not enabled:
        check_owner_left(user)
    User.objects.filter(pk=user_id).update(is_active=enabled)
    before, after = {"enabled": user.is_active}, {"enabled": enabled}
    record(
        "user:enabled" if enabled else "user:disabled",
        user,
        by=by,
        now=now,
        reason=reason,
        before=before,
        after=after,
    )
