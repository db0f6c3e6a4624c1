"""People: adding and changing them, and taking access away, which takes it at once."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.hashers import check_password, make_password
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from accounts import mails
from accounts.audit import Actor, record
from accounts.models import Client, PasswordLink, User
from accounts.revocation import lock_user, revoke_all
from accounts.sign_in import MAX_PASSWORD
from config.problems import Fault, InvalidRequest

EMAIL_TAKEN = Fault("/email", "unique", "There is a user with this email already.")


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
        "They can be disabled, not deleted."
    )


def add_user(*, email: str, client: Client | None, by: Actor, now: datetime) -> User:
    """A person who has no password yet and so cannot sign in.

    Raises ``InvalidRequest`` for an email that another user has, in whatever case.
    """
    with transaction.atomic():
        try:
            with transaction.atomic():
                user = User.objects.create_user(email, client=client, created_at=now)
        except IntegrityError:
            raise InvalidRequest(errors=[EMAIL_TAKEN]) from None
        record(
            "user:created", by=by, now=now, target=user.email, target_id=user.pk, after=_seen(user)
        )
    return user


def change_user(
    *, user_id: UUID, email: str, client: Client | None, by: Actor, now: datetime
) -> User:
    """Another email, or another client to work for. Raises ``InvalidRequest`` for an email that is taken."""
    with transaction.atomic():
        user = lock_user(user_id)
        before = _seen(user)
        user.email, user.client = email.lower(), client
        try:
            with transaction.atomic():
                user.save(update_fields=["email", "client"])
        except IntegrityError:
            raise InvalidRequest(errors=[EMAIL_TAKEN]) from None
        after = _seen(user)
        if after["email"] != before["email"]:
            # A link that was sent to the address before must not let its reader in.
            PasswordLink.objects.filter(user=user).delete()
        if after != before:
            record(
                "user:changed",
                by=by,
                now=now,
                target=user.email,
                target_id=user.pk,
                before=before,
                after=after,
            )
    return user


def set_password(
    *, user_id: UUID, password: str, by: Actor, now: datetime, reason: str = ""
) -> int:
    """A new password, which ends every session. Gives the number of sessions ended.

    Raises ``InvalidRequest`` with a fault for each validator the password fails. It is hashed before the
    row is locked, because that takes 20 ms.
    """
    encoded = hash_password(password, user=User.objects.get(pk=user_id))
    with transaction.atomic():
        user = lock_user(user_id)
        return put_password(user=user, encoded=encoded, by=by, now=now, reason=reason)


def hash_password(password: str, *, user: User) -> str:
    """A password as it is kept. Raises ``InvalidRequest`` with a fault for each validator it fails."""
    _check_password(password, user=user)
    return make_password(password)


def put_password(*, user: User, encoded: str, by: Actor, now: datetime, reason: str = "") -> int:
    """What :func:`set_password` does once it is hashed, for a caller that holds the lock of the user."""
    User.objects.filter(pk=user.pk).update(password=encoded)
    record(
        "user:password_set",
        by=by,
        now=now,
        target=user.email,
        target_id=user.pk,
        reason=reason,
    )
    if user.has_usable_password():
        mails.password_changed(user=user, now=now)
    return revoke_all(user_id=user.pk, by=by, reason="A new password was set.", now=now)


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
        # What was checked is compared again: a change must not outlive a revocation or another's new password.
        if (user.password, user.epoch) != (known.password, known.epoch):
            raise _wrong_password()
        return put_password(user=user, encoded=encoded, by=by, now=now)


def _wrong_password() -> WrongPassword:
    return WrongPassword(errors=[Fault("/current", "wrong", WrongPassword.default_detail)])


def disable(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> int:
    """No access until :func:`enable`. Gives the number of sessions this ended."""
    _check_not_oneself(user_id, by)
    _check_reason(reason)
    with transaction.atomic():
        _set_enabled(user_id, enabled=False, reason=reason, by=by, now=now)
        return revoke_all(user_id=user_id, by=by, reason=reason, now=now)


def enable(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> None:
    """Lets a disabled person sign in again, with the password they had."""
    _check_reason(reason)
    with transaction.atomic():
        _set_enabled(user_id, enabled=True, reason=reason, by=by, now=now)


def set_operator(*, user_id: UUID, operator: bool, reason: str, by: Actor, now: datetime) -> None:
    """Makes somebody an operator, who may do everything in the console, or no longer one."""
    _check_not_oneself(user_id, by)
    _check_reason(reason)
    with transaction.atomic():
        user = lock_user(user_id)
        before = {"operator": user.is_staff}
        User.objects.filter(pk=user_id).update(is_staff=operator, is_superuser=operator)
        record(
            "user:operator_set",
            by=by,
            now=now,
            target=user.email,
            target_id=user.pk,
            reason=reason,
            before=before,
            after={"operator": operator},
        )


def delete_user(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> None:
    """Removes a person with sessions and tokens. Raises ``StillNeeded`` for one who has usage."""
    _check_not_oneself(user_id, by)
    _check_reason(reason)
    with transaction.atomic():
        user = lock_user(user_id)
        before = _seen(user)
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
    user = lock_user(user_id)
    User.objects.filter(pk=user_id).update(is_active=enabled)
    record(
        "user:enabled" if enabled else "user:disabled",
        by=by,
        now=now,
        target=user.email,
        target_id=user.pk,
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


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise InvalidRequest(errors=[Fault("/reason", "required", "Say why.")])


def _check_not_oneself(user_id: UUID, by: Actor) -> None:
    if by.id == user_id:
        raise NotYourself


def _seen(user: User) -> dict[str, Any]:
    """A person as the audit log keeps it."""
    return {"email": user.email, "client": user.client.name if user.client else None}
