"""Proofs of a second factor by a typed code. Passkeys are proved by the views of their library."""

from datetime import datetime
from math import ceil
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django_otp import verify_token
from django_otp.models import Device

from accounts import mails
from accounts.audit import Actor, record
from accounts.factors.devices import authenticators, kind_of, recovery_codes
from accounts.models import Authenticator, RecoveryCodes, User
from accounts.typed_codes import as_typed
from config.platform.problems.problem import Fault, InvalidRequest

# Wrong codes of one kind in a row after which the operator is mailed: so many are no slips of a finger.
SUSPICIOUS = 5


WRONG = "This code is wrong. Each wrong code doubles the wait for the next one, up to 17 minutes."
USED = "This code was used before. Wait for the next one."


class WrongCode(InvalidRequest):
    default_detail = WRONG


def prove_by_code(*, user: User, code: str, sign_in: bool, by: Actor, now: datetime) -> Device:
    """The app of this code, which is good once. Raises ``WrongCode``."""
    code = "".join(code.split())
    apps = authenticators(user.pk)
    device = _proved([*apps], code, user=user, sign_in=sign_in, by=by, now=now)
    # Each app in turn has tried the code. Those that it was not of would wait twice as long at each sign-in.
    apps.update(throttling_failure_count=0, throttling_failure_timestamp=None)
    return device


def prove_by_recovery_code(
    *, user: User, code: str, sign_in: bool, by: Actor, now: datetime
) -> Device:
    """The recovery codes, one of which this is and no longer works. Raises ``WrongCode``."""
    codes = recovery_codes(user.pk)
    known = [codes] if codes else []
    device = _proved([*known], as_typed(code), user=user, sign_in=sign_in, by=by, now=now)
    left = len(RecoveryCodes.objects.get(user=user).hashes)
    mails.factor_changed(user=user, change=f"A recovery code was used; {left} left.", now=now)
    return device


def record_proof(device: Device, *, user: User, sign_in: bool, by: Actor, now: datetime) -> None:
    """Audits a proof: the first one completes a sign-in, later ones are asked for before grave acts."""
    after = {"kind": kind_of(device), "name": device.name}
    record(
        "operator:signed_in" if sign_in else "operator:factor_proved",
        user,
        by=by,
        now=now,
        after=after,
    )


def _proved(
    known: list[Device], code: str, *, user: User, sign_in: bool, by: Actor, now: datetime
) -> Device:
    failures, why = _failures(known), _too_early(known, now=now)
    device = next((each for each in known if verify_token(user, each.persistent_id, code)), None)
    if device is None:
        kinds = {"kind": kind_of(known[0])} if known else {}
        with transaction.atomic():
            record("operator:factor_refused", user, by=by, now=now, after=kinds)
            # Codes that come too early count for nothing, so this is once until a code is right.
            if failures < SUSPICIOUS <= _failures(known):
                mails.codes_refused(user=user, number=SUSPICIOUS, address=by.address, now=now)
        if not why:
            used = (isinstance(each, Authenticator) and each.was_used(code) for each in known)
            why = USED if any(used) else WRONG
        raise WrongCode(errors=[Fault("/code", "wrong", why)])
    record_proof(device, user=user, sign_in=sign_in, by=by, now=now)
    return device


def _too_early(known: list[Any], *, now: datetime) -> str:
    """The wait that earlier wrong codes have left for every device; "" if one may be tried now."""
    ends = [(each.verify_is_allowed()[1] or {}).get("locked_until", now) for each in known]
    seconds = ceil((min(ends, default=now) - now).total_seconds())
    shown = f"{seconds} second{'' if seconds == 1 else 's'}"
    if seconds > 120:
        shown = f"{ceil(seconds / 60)} minutes"
    return f"Wait {shown}, then enter the current code." if seconds > 0 else ""


def _failures(known: list[Device]) -> int:
    """The wrong codes in a row of the device that has most of them."""
    kept: list[QuerySet[Any]] = [QuerySet(type(each)).filter(pk=each.pk) for each in known]
    counts = [rows.values_list("throttling_failure_count", flat=True).first() for rows in kept]
    return max((each or 0 for each in counts), default=0)
