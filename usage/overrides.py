"""Overrides: what an operator allows one person instead of the plan's numbers, until a date.

Of several in force the latest counts, alone. None is edited: another one is granted, or one is ended early.
"""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from accounts.audit import Actor, record
from accounts.models import User
from config.problems import Fault, InvalidRequest, instant
from usage.models import Override


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Tokens allowed instead of the plan's; None leaves the plan's number, 0 stops model calls."""

    monthly_input_tokens: int | None = None
    monthly_output_tokens: int | None = None
    daily_tokens: int | None = None


def grant_override(
    *, user_id: UUID, allowance: Allowance, ends_at: datetime, reason: str, by: Actor, now: datetime
) -> Override:
    """Other numbers for one person, from now until ``ends_at``.

    Raises ``InvalidRequest`` without a reason, without any number, or for an end that has passed.
    """
    _check(allowance, ends_at=ends_at, reason=reason, now=now)
    with transaction.atomic():
        # The key lock of the new row's reference keeps the person from going away meanwhile.
        user = User.objects.only("email").get(pk=user_id)
        override = Override.objects.create(
            user=user, **asdict(allowance), starts_at=now, ends_at=ends_at, reason=reason
        )
        record(
            "override:granted",
            by=by,
            now=now,
            target=user.email,
            target_id=user.pk,
            reason=reason,
            after=_seen(override),
        )
    return override


def end_override(*, override_id: int, reason: str, by: Actor, now: datetime) -> bool:
    """Ends an override before its time; False where it had ended."""
    if not reason.strip():
        raise InvalidRequest(errors=[Fault("/reason", "required", "Say why.")])
    with transaction.atomic():
        overrides = Override.objects.select_related("user")
        override = overrides.select_for_update(of=("self",)).get(pk=override_id)
        if override.ends_at <= now:
            return False
        before = _seen(override)
        # One that was to begin later or begins now must still end after it begins.
        override.ends_at = max(now, override.starts_at + timedelta(microseconds=1))
        override.save(update_fields=["ends_at"])
        record(
            "override:ended",
            by=by,
            now=now,
            target=override.user.email,
            target_id=override.user_id,
            reason=reason,
            before=before,
            after=_seen(override),
        )
    return True


def _check(allowance: Allowance, *, ends_at: datetime, reason: str, now: datetime) -> None:
    faults = []
    if not reason.strip():
        faults.append(Fault("/reason", "required", "Say why."))
    if ends_at <= now:
        faults.append(Fault("/ends_at", "invalid", "This end has passed."))
    if all(number is None for number in asdict(allowance).values()):
        faults.append(Fault("", "required", "Give at least one number."))
    if faults:
        raise InvalidRequest(errors=faults)


def _seen(override: Override) -> dict[str, Any]:
    """An override as the audit log keeps it; only the numbers it sets."""
    numbers = {
        name: getattr(override, name)
        for name in ("monthly_input_tokens", "monthly_output_tokens", "daily_tokens")
        if getattr(override, name) is not None
    }
    return {**numbers, "ends_at": instant(override.ends_at)}
