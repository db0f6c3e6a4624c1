"""Overrides: an operator's numbers for one person until a date, instead of the plan's or on top of them.

Of several instead of the plan's, only the latest counts; extra allowances add up on top of all other numbers. An
override is never edited: operators grant another one, or end one early.
"""

from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from accounts.audit import Actor, check_reason, reason_faults, record
from accounts.models import User
from config.platform.periods import Period
from config.platform.problems.problem import Fault, InvalidRequest, instant
from usage.models import Override

# More than anybody can use, and small enough that sums fit the database's type.
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
    """Grants one person other numbers than the plan's, from now until ``ends_at``.

    Raises ``InvalidRequest`` without a reason, without any number, or for an end that has passed.
    """
    _check(allowance, ends_at=ends_at, reason=reason, now=now)
    override = Override(user_id=user_id, **asdict(allowance), starts_at=now, ends_at=ends_at)
    return _grant(override, "override:granted", reason=reason, by=by, now=now)


def grant_extra(
    *, user_id: UUID, allowance: Allowance, ends_at: datetime, reason: str, by: Actor, now: datetime
) -> Override:
    """Grants one person more of this month's tokens, on top of all other numbers, from now until ``ends_at``.

    Raises ``InvalidRequest`` without a reason, without any number above 0, for an end that has passed, or for an end
    beyond this month, because the next month would get the allowance a second time.
    """
    _check(allowance, ends_at=ends_at, reason=reason, now=now)
    faults = []
    if ends_at > Period.of(now).next_month:
        faults.append(Fault("/ends_at", "invalid", "The end must be within this month."))
    if not any(asdict(allowance).values()):
        faults.append(Fault("", "required", "Give at least one number above 0."))
    if faults:
        raise InvalidRequest(errors=faults)
    override = Override(user_id=user_id, **asdict(allowance), starts_at=now, ends_at=ends_at)
    override.is_extra = True
    return _grant(override, "override:extra_granted", reason=reason, by=by, now=now)


def _grant(override: Override, action: str, *, reason: str, by: Actor, now: datetime) -> Override:
    with transaction.atomic():
        # The key lock of the new row's reference prevents the person's deletion meanwhile.
        user = User.objects.only("email").get(pk=override.user_id)
        override.user, override.reason = user, reason
        override.save(force_insert=True)
        record(action, user, by=by, now=now, reason=reason, after=_seen(override))
    return override


def end_override(*, override_id: int, reason: str, by: Actor, now: datetime) -> bool:
    """Ends an override early; returns False if it had ended already."""
    check_reason(reason)
    with transaction.atomic():
        overrides = Override.objects.select_related("user")
        override = overrides.select_for_update(of=("self",)).get(pk=override_id)
        if override.ends_at <= now:
            return False
        before = _seen(override)
        # The end stays after the start, also of an override that begins now or later.
        override.ends_at = max(now, override.starts_at + timedelta(microseconds=1))
        override.save(update_fields=["ends_at"])
        user, after = override.user, _seen(override)
        record("override:ended", user, by=by, now=now, reason=reason, before=before, after=after)
    return True


def _check(allowance: Allowance, *, ends_at: datetime, reason: str, now: datetime) -> None:
    faults = reason_faults(reason)
    if ends_at <= now:
        faults.append(Fault("/ends_at", "invalid", "This date has passed."))
    if all(number is None for number in asdict(allowance).values()):
        faults.append(Fault("", "required", "Give at least one number."))
    for name, number in asdict(allowance).items():
        if number is not None and not 0 <= number <= MOST_TOKENS:
            faults.append(Fault(f"/{name}", "invalid", f"From 0 to {MOST_TOKENS:,}."))
    if faults:
        raise InvalidRequest(errors=faults)


def _seen(override: Override) -> dict[str, Any]:
    """The representation in the audit log, with the numbers that are set."""
    numbers = {each.name: getattr(override, each.name) for each in fields(Allowance)}
    given = {name: number for name, number in numbers.items() if number is not None}
    return {**given, "ends_at": instant(override.ends_at)}
