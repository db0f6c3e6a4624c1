"""Sets second factors up, changes them and resets lost ones. Each change is audited, and the operator is mailed."""

import secrets
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django_otp import verify_token
from django_otp.models import Device
from django_otp_webauthn.models import WebAuthnCredential

from accounts import mails
from accounts.audit import Actor, check_reason, record
from accounts.factors import console_sessions
from accounts.factors.devices import devices, forget_devices, has_factor, kind_of
from accounts.hashers import TOKEN_HASHER, plain_hash
from accounts.models import Authenticator, RecoveryCodes, SetUpCode, User
from accounts.rights import check_not_oneself, check_owner
from accounts.sessions.revocation import lock_user
from accounts.typed_codes import as_typed, grouped, new_code
from config.platform.problems.problem import Fault, InvalidRequest, instant

SET_UP_WITHIN = timedelta(minutes=30)
# 23 letters of 32 are 115 random bits, for which a plain hash does; 16 are 80, for which argon2id does.
SET_UP_LETTERS, RECOVERY_LETTERS = 23, 16
RECOVERY_CODES = 10
KEY_BYTES = 20
NAME_LENGTH = 64


class NotAnOperator(InvalidRequest):
    default_detail = "Only operators who can sign in have a second factor."


class HasFactor(InvalidRequest):
    default_detail = "This operator already has a second factor. If it is lost, reset it first."


class LastFactor(InvalidRequest):
    default_detail = "This is your only factor. Add another one first."


class WrongSetUpCode(InvalidRequest):
    default_detail = (
        "This code is wrong or more than 30 minutes old. Ask an owner of the console for a new one."
    )


class WrongFirstCode(InvalidRequest):
    default_detail = "This is not the code that the app shows now. Check the clock of the device that it runs on."


def make_set_up_code(*, user_id: UUID, by: Actor, now: datetime, reason: str = "") -> str:
    """Makes the code with which an operator sets up a factor; an earlier one stops working.

    Raises ``NotAnOwner``, ``NotAnOperator``, ``HasFactor``, and ``NotYourself``.
    """
    check_not_oneself(user_id, by)
    secret = new_code(SET_UP_LETTERS)
    with transaction.atomic():
        user = _lock_operator(user_id, by=by)
        if has_factor(user_id):
            raise HasFactor
        keep_set_up_code(user=user, secret=secret, by=by, now=now, reason=reason)
    return grouped(secret)


def keep_set_up_code(*, user: User, secret: str, by: Actor, now: datetime, reason: str) -> None:
    """Keeps the hash of a set-up code in place of an earlier one."""
    expires_at = now + SET_UP_WITHIN
    kept = {"secret_hash": plain_hash(secret), "expires_at": expires_at}
    SetUpCode.objects.update_or_create(user=user, defaults=kept)
    after = {"expires_at": instant(expires_at)}
    record("operator:set_up_code_made", user, by=by, now=now, reason=reason, after=after)


def use_set_up_code(*, user: User, code: str, by: Actor, now: datetime) -> None:
    """Uses a set-up code up. Raises ``WrongSetUpCode``."""
    with transaction.atomic():
        live = SetUpCode.objects.filter(user=user, expires_at__gt=now)
        used, _ = live.filter(secret_hash=plain_hash(as_typed(code))).delete()
        # An app that was begun with an earlier code may be known to whoever had that one.
        Authenticator.objects.filter(user=user, confirmed=False).delete()
        record(
            "operator:set_up_code_used" if used else "operator:set_up_code_refused",
            user,
            by=by,
            now=now,
        )
    if not used:
        raise WrongSetUpCode(errors=[Fault("/code", "wrong", WrongSetUpCode.default_detail)])


def begin_authenticator(*, user: User, now: datetime) -> Authenticator:
    """The app that is being set up: it counts once its first code is right."""
    unconfirmed = Authenticator.objects.filter(user=user, confirmed=False)
    # A key that was shown may be known to anybody who was at the browser then.
    unconfirmed.filter(created_at__lte=now - SET_UP_WITHIN).delete()
    begun: Authenticator | None = unconfirmed.first()
    if begun is None:
        begun = Authenticator(user=user, confirmed=False, name="Authenticator app")
        begun.seal("key", secrets.token_bytes(KEY_BYTES))
        begun.save()
    return begun


def confirm_authenticator(*, user: User, code: str, name: str, by: Actor, now: datetime) -> Device:
    """Takes an app into use. Raises ``WrongFirstCode``."""
    device = begin_authenticator(user=user, now=now)
    with transaction.atomic():
        if verify_token(user, device.persistent_id, "".join(code.split())):
            device.refresh_from_db()
            device.confirmed, device.name = True, name.strip()[:NAME_LENGTH] or device.name
            device.save(update_fields=["confirmed", "name"])
            added(device, user=user, by=by, now=now)
            return device
    record("operator:factor_refused", user, by=by, now=now, after={"kind": kind_of(device)})
    raise WrongFirstCode(errors=[Fault("/code", "wrong", WrongFirstCode.default_detail)])


def name_passkey(device: WebAuthnCredential, *, user: User, by: Actor, now: datetime) -> None:
    """Gives a passkey that the library has just stored a name that the operator can change."""
    device.name = f"Passkey of {now:%Y-%m-%d}"
    device.save(update_fields=["name"])
    added(device, user=user, by=by, now=now)


def added(device: Device, *, user: User, by: Actor, now: datetime) -> None:
    SetUpCode.objects.filter(user=user).delete()
    after = {"kind": kind_of(device), "name": device.name}
    record("operator:factor_added", user, by=by, now=now, after=after)
    mails.factor_changed(user=user, change=f"{_named(device)} was added to your sign-in.", now=now)


def rename(*, user: User, device_id: str, name: str, by: Actor, now: datetime) -> None:
    """Renames a factor of this operator. Nothing happens if they have none with this id or give no name."""
    device, name = _own(user, device_id), name.strip()[:NAME_LENGTH]
    if device is not None and name:
        before, after = {"name": device.name}, {"name": name}
        device.name = name
        device.save(update_fields=["name"])
        record("operator:factor_renamed", user, by=by, now=now, before=before, after=after)


def remove(*, user: User, device_id: str, by: Actor, now: datetime) -> None:
    """Removes a factor of this operator. Raises ``LastFactor`` for the only one."""
    with transaction.atomic():
        lock_user(user.pk)
        device = _own(user, device_id)
        if device is None:
            return
        if len(devices(user.pk)) == 1:
            raise LastFactor
        before = {"kind": kind_of(device), "name": device.name}
        device.delete()
        record("operator:factor_removed", user, by=by, now=now, before=before)
        mails.factor_changed(
            user=user, change=f"{_named(device)} was removed from your sign-in.", now=now
        )


def make_recovery_codes(*, user: User, by: Actor, now: datetime) -> list[str]:
    """Makes new recovery codes, to be shown once; the earlier ones stop working."""
    codes = [new_code(RECOVERY_LETTERS) for _ in range(RECOVERY_CODES)]
    kept = {"name": "Recovery codes", "hashes": [TOKEN_HASHER.hash(each) for each in codes]}
    with transaction.atomic():
        RecoveryCodes.objects.update_or_create(user=user, defaults=kept)
        record("operator:recovery_codes_made", user, by=by, now=now)
        mails.factor_changed(user=user, change="New recovery codes were created.", now=now)
    return [grouped(each) for each in codes]


def reset(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> int:
    """Removes an operator's factors and ends their sessions; returns the number of removed factors.

    They sign in again with their password and a new set-up code.
    """
    check_not_oneself(user_id, by)
    check_reason(reason)
    with transaction.atomic():
        user = _lock_operator(user_id, by=by)
        removed = forget_devices(user_id)
        console_sessions.end_all(user_id=user_id, now=now)
        before = {"factors": removed}
        record("operator:factor_reset", user, by=by, now=now, reason=reason, before=before)
        mails.factor_changed(user=user, change="Your second factor was reset.", now=now)
    return removed


def _named(device: Device) -> str:
    """As a sentence begins: "The passkey Blue laptop"."""
    return f"The {kind_of(device)} {device.name}"


def _own(user: User, device_id: str) -> Device | None:
    return next((each for each in devices(user.pk) if each.persistent_id == device_id), None)


def _lock_operator(user_id: UUID, *, by: Actor) -> User:
    """Locks an operator's row for a change that owners alone make."""
    user = lock_user(user_id)
    check_owner(by=by)
    if not (user.is_active and user.is_staff):
        raise NotAnOperator
    return user
