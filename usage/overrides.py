"""Overrides: what an operator allows one person until a date, instead of the plan's numbers or on top of them.

Of several that stand instead the latest counts, alone; extra allowances add up, on top of whatever else counts.
None is edited: another one is granted, or one is ended early.
"""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from accounts.audit import Actor, record
from accounts.models import User
from config.api.problems import Fault, InvalidRequest, instant
from usage.models import Override
from usage.periods import Period

# More than anybody can spend, and few enough that sums of them stay numbers of the database.
MOST_TOKENS = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Tokens. Instead of the plan's, None leaves the plan's number and 0 stops model calls; on top, None is 0."""

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
    return _grant(
        Override(user_id=user_id, **asdict(allowance), starts_at=now, ends_at=ends_at),
        "override:granted",
        reason=reason,
        by=by,
        now=now,
    )


def grant_extra(
    *, user_id: UUID, allowance: Allowance, ends_at: datetime, reason: str, by: Actor, now: datetime
) -> Override:
    """More of this month's tokens for one person, on top of what else counts, from now until ``ends_at``.

    Raises ``InvalidRequest`` without a reason, without any number above 0, for an end that has passed, or for one
    beyond this month, in which "more of this month's" would be given a second time.
    """
    _check(allowance, ends_at=ends_at, reason=reason, now=now)
    faults = []
    if ends_at > Period.of(now).next_month:
        faults.append(Fault("/ends_at", "invalid", "Not beyond this month; grant it again then."))
    if not any(asdict(allowance).values()):
        faults.append(Fault("", "required", "Give at least one number above 0."))
    if faults:
        raise InvalidRequest(errors=faults)
    return _grant(
        Override(
            user_id=user_id, **asdict(allowance), is_extra=True, starts_at=now, ends_at=ends_at
        ),
        "override:extra_granted",
        reason=reason,
        by=by,
        now=now,
    )


def _grant(override: Override, action: str, *, reason: str, by: Actor, now: datetime) -> Override:
    with transaction.atomic():
        # The key lock of the new row's reference keeps the person from going away meanwhile.
        user = User.objects.only("email").get(pk=override.user_id)
        override.user, override.reason = user, reason
        override.save(force_insert=True)
        record(
            action,
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
    for name, number in asdict(allowance).items():
        if number is not None and not 0 <= number <= MOST_TOKENS:
            faults.append(Fault(f"/{name}", "invalid", f"From 0 to {MOST_TOKENS:,}."))
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
