"""People: adding, changing and moving them, and taking access away, which takes it at once."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.apps import apps
from django.conf import settings
from django.contrib.auth.hashers import check_password, make_password
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError, QuerySet

from accounts.audit import Actor, record, record_each
from accounts.connections.disconnecting import disconnect_all
from accounts.models import Client, PasswordLink, Session, User
from accounts.people import mails
from accounts.people.emails import is_email
from accounts.sessions.revocation import lock_user, revoke_all
from accounts.sessions.sign_in import MAX_PASSWORD
from config.api.problems import Fault, InvalidRequest

EMAIL_TAKEN = Fault("/email", "unique", "There is a user with this email already.")
NOT_AN_EMAIL = Fault("/email", "invalid", "This is not an email address.")
SAME_CLIENT = Fault("/client", "unchanged", "This is where they are already.")


class NotYourself(InvalidRequest):
    """An operator who locks himself out may be the last one."""

    default_detail = "You cannot do this to yourself. Ask another operator."


class WrongPassword(InvalidRequest):
    """Not a 401: the caller is signed in and stays so."""

    default_detail = "That is not your current password."


class StillNeeded(InvalidRequest):
    """What refers to this must stay, so this must stay."""

    default_detail = (
        "Something that must stay refers to this person, such as usage in the ledger. "
        "They can be disabled or erased, not deleted."
    )


class Erased(InvalidRequest):
    """There is nobody left to do anything to."""

    default_detail = "This person has been erased, which cannot be undone."


def add_user(*, email: str, client: Client | None, by: Actor, now: datetime) -> User:
    """A person who has no password yet and so cannot sign in.

    Raises ``InvalidRequest`` for an email that is none, and for one that another user has, in whatever case.
    """
    return add_users(emails=[email], client=client, by=by, now=now)[0]


def add_users(
    *, emails: Sequence[str], client: Client | None, by: Actor, now: datetime
) -> list[User]:
    """The same for several at once: all of them or, where one email is none or is taken, nobody."""
    for email in emails:
        _check_email(email)
    people = [
        User(email=email.lower(), client=client, password=make_password(None), created_at=now)
        for email in emails
    ]
    with transaction.atomic():
        try:
            with transaction.atomic():
                User.objects.bulk_create(people)
        except IntegrityError:
            raise InvalidRequest(errors=[EMAIL_TAKEN]) from None
        named = [(user.email, user.pk) for user in people]
        after = {"client": client.name if client else None}
        record_each("user:created", by=by, now=now, of=named, after=after)
    return people


def add_operator(*, email: str, password: str | None, by: Actor, now: datetime) -> User:
    """An operator who belongs to no client, and so cannot use the API; without a password they cannot sign in yet.

    Raises ``InvalidRequest`` for an email that is none or is taken, and with a fault for each validator that the
    password fails.
    """
    _check_email(email)
    operator = User(email=email.lower(), is_staff=True, is_superuser=True, created_at=now)
    operator.password = (
        make_password(None) if password is None else hash_password(password, user=operator)
    )
    with transaction.atomic():
        try:
            with transaction.atomic():
                operator.save()
        except IntegrityError:
            raise InvalidRequest(errors=[EMAIL_TAKEN]) from None
        record("operator:added", by=by, now=now, target=operator, after=_seen(operator))
    return operator


def change_email(*, user_id: UUID, email: str, reason: str, by: Actor, now: datetime) -> User:
    """Another email to sign in with; sessions go on, and the one before is told by mail.

    Raises ``InvalidRequest`` for one that is none or is taken, and without a reason.
    """
    check_reason(reason)
    _check_email(email)
    with transaction.atomic():
        user = lock_person(user_id)
        before = _seen(user)
        user.email = email.lower()
        if user.email == before["email"]:
            return user
        # A link that was sent to the address before must not let its reader in, an invitation included.
        PasswordLink.objects.filter(user=user).delete()
        user.invited_at = None
        try:
            with transaction.atomic():
                user.save(update_fields=["email", "invited_at"])
        except IntegrityError:
            raise InvalidRequest(errors=[EMAIL_TAKEN]) from None
        sign_anew(was=before["email"], email=user.email)
        record(
            "user:email_changed",
            by=by,
            now=now,
            target=user,
            reason=reason,
            before={"email": before["email"]},
            after={"email": user.email},
        )
        if user.has_usable_password():
            # Whoever has never had one has never come in with that email, which may be a stranger's.
            mails.email_changed(was=before["email"], now=now)
    return user


def sign_anew(*, was: str, email: str) -> None:
    """Has rows that say by email who did something say the other one. The audit log is not among them."""
    for label, column in settings.SIGNED_BY_EMAIL:
        rows: QuerySet[Any] = QuerySet(apps.get_model(label))
        rows.filter(**{column: was}).update(**{column: email})


def move_user(
    *, user_id: UUID, client: Client | None, reason: str, by: Actor, now: datetime
) -> int:
    """Another client to work for, or none. Gives the number of sessions ended.

    Tokens name the client, so what was granted before ends with the move. The ledger keeps each call with the
    client it was made for, and the person's own total of the month goes on. An invitation that has not been
    accepted is void, as every link is after a revocation.
    """
    check_reason(reason)
    with transaction.atomic():
        user = lock_person(user_id)
        before, after = _client_of(user.client), _client_of(client)
        if before == after:
            raise InvalidRequest(errors=[SAME_CLIENT])
        User.objects.filter(pk=user_id).update(client=client, invited_at=None)
        record("user:moved", by=by, now=now, target=user, reason=reason, before=before, after=after)
        return revoke_all(user_id=user_id, by=by, reason=reason, now=now)


def set_password(
    *, user_id: UUID, password: str, by: Actor, now: datetime, reason: str = ""
) -> int:
    """A new password, which ends every session. Gives the number of sessions ended.

    Raises ``InvalidRequest`` with a fault for each validator the password fails. It is hashed before the
    row is locked, because that takes 20 ms.
    """
    encoded = hash_password(password, user=User.objects.get(pk=user_id))
    with transaction.atomic():
        user = lock_person(user_id)
        return put_password(user=user, encoded=encoded, by=by, now=now, reason=reason)


def hash_password(password: str, *, user: User) -> str:
    """A password as it is kept. Raises ``InvalidRequest`` with a fault for each validator it fails."""
    _check_password(password, user=user)
    return make_password(password)


def put_password(*, user: User, encoded: str, by: Actor, now: datetime, reason: str = "") -> int:
    """What :func:`set_password` does once it is hashed, for a caller that holds the lock of the user."""
    User.objects.filter(pk=user.pk).update(password=encoded)
    record("user:password_set", by=by, now=now, target=user, reason=reason)
    if user.has_usable_password():
        mails.password_changed(user=user, now=now)
    why = Session.Ended.PASSWORD
    reason = "A new password was set."
    return revoke_all(user_id=user.pk, by=by, reason=reason, why=why, now=now)


def change_password(*, user_id: UUID, current: str, new: str, by: Actor, now: datetime) -> int:
    """A person's own change of password, which ends every session. Gives the number of sessions ended.

    Raises ``WrongPassword`` where ``current`` is not theirs, and what :func:`set_password` raises.
    """
    known = User.objects.get(pk=user_id)
    if not check_password(current, known.password):
        raise _wrong_password()
    try:
        encoded = hash_password(new, user=known)
    except InvalidRequest as refusal:
        faults = [Fault("/new", fault.code, fault.detail) for fault in refusal.errors]
        raise InvalidRequest(errors=faults) from None
    with transaction.atomic():
        user = lock_user(user_id)
        # A change must not outlive a revocation or another's new password, both of which move the epoch.
        if user.epoch != known.epoch:
            raise _wrong_password()
        return put_password(user=user, encoded=encoded, by=by, now=now)


def lock_person(user_id: UUID) -> User:
    """Locks the row of somebody who is still somebody. Raises ``Erased``."""
    user = lock_user(user_id)
    if user.erased_at is not None:
        raise Erased
    return user


def _check_email(email: str) -> None:
    """Raises ``InvalidRequest`` for what is no email."""
    if not is_email(email):
        raise InvalidRequest(errors=[NOT_AN_EMAIL])


def _wrong_password() -> WrongPassword:
    return WrongPassword(errors=[Fault("/current", "wrong", WrongPassword.default_detail)])


def disable(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> int:
    """No access until :func:`enable`, and no connections, which are revoked. Gives the number of sessions ended."""
    check_not_oneself(user_id, by)
    check_reason(reason)
    with transaction.atomic():
        _set_enabled(user_id, enabled=False, reason=reason, by=by, now=now)
        disconnect_all(user_id=user_id, by=by, now=now, reason=reason)
        why = Session.Ended.DISABLED
        return revoke_all(user_id=user_id, by=by, reason=reason, why=why, now=now)


def enable(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> None:
    """Lets a disabled person sign in again, with the password they had."""
    check_reason(reason)
    with transaction.atomic():
        _set_enabled(user_id, enabled=True, reason=reason, by=by, now=now)


def set_operator(*, user_id: UUID, operator: bool, reason: str, by: Actor, now: datetime) -> None:
    """Makes somebody an operator, who may do everything in the console, or no longer one."""
    check_not_oneself(user_id, by)
    check_reason(reason)
    with transaction.atomic():
        user = lock_person(user_id)
        before = {"operator": user.is_staff}
        User.objects.filter(pk=user_id).update(is_staff=operator, is_superuser=operator)
        record(
            "user:operator_set",
            by=by,
            now=now,
            target=user,
            reason=reason,
            before=before,
            after={"operator": operator},
        )


def delete_user(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> None:
    """Removes a person with sessions and tokens. Raises ``StillNeeded`` for one who has usage."""
    check_not_oneself(user_id, by)
    check_reason(reason)
    with transaction.atomic():
        user = lock_user(user_id)
        before = _seen(user)
        disconnect_all(user_id=user_id, by=by, now=now, reason=reason)
        try:
            user.delete()
        except ProtectedError:
            raise StillNeeded from None
        record(
            "user:deleted",
            by=by,
            now=now,
            target=user.email,
            target_id=user_id,
            reason=reason,
            before=before,
        )


def _set_enabled(user_id: UUID, *, enabled: bool, reason: str, by: Actor, now: datetime) -> None:
    user = lock_person(user_id)
    User.objects.filter(pk=user_id).update(is_active=enabled)
    record(
        "user:enabled" if enabled else "user:disabled",
        by=by,
        now=now,
        target=user,
        reason=reason,
        before={"enabled": user.is_active},
        after={"enabled": enabled},
    )


def _check_password(password: str, *, user: User) -> None:
    if len(password) > MAX_PASSWORD:
        fault = Fault("/password", "max_length", f"At most {MAX_PASSWORD} characters.")
        raise InvalidRequest(errors=[fault])
    try:
        validate_password(password, user=user)
    except ValidationError as error:
        raise InvalidRequest(
            errors=[
                Fault("/password", str(each.code or "invalid"), sentence)
                for each in error.error_list
                for sentence in each.messages
            ]
        ) from None


def check_reason(reason: str) -> None:
    if not reason.strip():
        raise InvalidRequest(errors=[Fault("/reason", "required", "Say why.")])


def check_not_oneself(user_id: UUID, by: Actor) -> None:
    if by.id == user_id:
        raise NotYourself


def _seen(user: User) -> dict[str, Any]:
    """A person as the audit log keeps it."""
    return {"email": user.email, "client": user.client.name if user.client else None}


def _client_of(client: Client | None) -> dict[str, Any]:
    """A client as the audit log keeps it; names may be the same, ids are not."""
    return {
        "client": client.name if client else None,
        "client_id": str(client.pk) if client else None,
    }
