"""The refusals of a call by caps and limits.

They distinguish a cap that is used up from one that running calls hold, and a call that is too large for the rest from
tokens that are used up.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self
from uuid import UUID

from config.platform.periods import Period
from config.platform.problems.problem import RefusedUntil
from usage.alerts import note_daily_limit
from usage.limits import (
    LEAST_OUTPUT,
    Balance,
    PlanCaps,
    balance,
    remaining_headers,
    small_prompt,
)
from usage.models import KeyMonth
from usage.stops import ModelCallsStopped

# The Retry-After while running calls hold the tokens that are left.
RESERVED_RETRY = timedelta(seconds=5)
# OpenAI's code of tokens that are used up; SDKs do not try again.
SPENT = "insufficient_quota"


class MonthlyCapExceeded(RefusedUntil):
    code = "monthly_cap_exceeded"
    sdk_code = SPENT
    title = "Monthly cap reached"
    default_detail = "This month's tokens are used up. The cap resets on the first of next month."


class DailyLimitReached(RefusedUntil):
    code = "daily_limit_reached"
    sdk_code = SPENT
    title = "Daily limit reached"
    default_detail = "Today's tokens are used up. The limit resets at midnight UTC."


class BudgetExceeded(RefusedUntil):
    """The client's budget is spent. It says no amounts: costs are not shown to people."""

    code = "budget_exceeded"
    sdk_code = SPENT
    title = "Monthly budget spent"
    default_detail = (
        "Your organisation's budget for this month is spent. It resets on the first of next month."
    )


class CapReserved(RefusedUntil):
    code = "cap_reserved"
    title = "Waiting for running calls"
    default_detail = "Running calls hold the tokens that are left. Please try again in a moment."


class Needs(NamedTuple):
    """The least that a person's call needs, in tokens, and the personal key with its own cap that it may be made by."""

    user_id: UUID
    client_id: UUID
    prompt: int
    output: int = LEAST_OUTPUT
    key_id: UUID | None = None
    key_cap: int | None = None


class Reading(NamedTuple):
    """The input of the rules below: a person's balance, and each cap beside a call's needs. Reserves nothing."""

    balance: Balance
    shares: tuple["Share", ...]
    now: datetime

    @classmethod
    def of(cls, needs: Needs, *, plan: PlanCaps, now: datetime) -> Self:
        """One query, and another for a key with a cap of its own."""
        found = balance(user_id=needs.user_id, client_id=needs.client_id, plan=plan, now=now)
        return cls(found, _shares(found, needs, period=Period.of(now)), now)

    @property
    def headers(self) -> dict[str, str]:
        *month, day = (share.left for share in self.shares)
        known = [left for left in month if left is not None]
        return remaining_headers(
            month=min(known, default=None), day=day, day_cap=self.shares[-1].cap, now=self.now
        )


def check_stop(reading: Reading) -> None:
    """Raises ``ModelCallsStopped``."""
    if reading.balance.stopped:
        raise ModelCallsStopped


def check_budget(reading: Reading) -> None:
    """Raises ``BudgetExceeded``."""
    if reading.balance.budget_spent:
        headers, until = {"x-should-retry": "false", **reading.headers}, Period.of(reading.now)
        raise BudgetExceeded(now=reading.now, until=until.next_month, headers=headers)


def check_month(reading: Reading) -> None:
    """Raises ``MonthlyCapExceeded`` for the first cap that is used up."""
    for share in reading.shares[:-1]:
        if share.is_spent:
            raise share.refusal(reading)


def check_day(reading: Reading) -> None:
    """Raises ``DailyLimitReached``."""
    if reading.shares[-1].is_spent:
        raise reading.shares[-1].refusal(reading)


def check_reserved(reading: Reading) -> None:
    """Raises ``CapReserved`` while running calls hold what a call needs."""
    # No running call holds anything of a share that is spent already.
    if any(share.is_full and not share.is_spent for share in reading.shares):
        raise reserved_for_now(reading)


# In the order in which a call meets them.
RULES = (check_stop, check_budget, check_month, check_day, check_reserved)


def check_caps(needs: Needs, *, plan: PlanCaps, now: datetime) -> Balance:
    """Refuses a call that is stopped or does not fit, and notes a daily limit that is reached.

    It reserves nothing: what passes here may still be refused by ``usage.caps.reserve``.
    """
    reading = Reading.of(needs, plan=plan, now=now)
    try:
        for check in RULES:
            check(reading)
    except DailyLimitReached:
        reading.shares[-1].note(needs.user_id, period=Period.of(now), now=now)
        raise
    return reading.balance


def reserved_for_now(reading: Reading) -> CapReserved:
    """The refusal while running calls hold what a call needs, with the numbers of the scarcest cap."""
    capped = [share for share in reading.shares if share.left is not None and share.wanted]
    scarcest = min(capped, key=Share.spare, default=None)
    numbers: dict[str, Any] = scarcest.needs() if scarcest else {}
    now, headers = reading.now, reading.headers
    return CapReserved(now=now, until=now + RESERVED_RETRY, headers=headers, **numbers)


def _share_of_key(needs: Needs, period: Period) -> tuple["Share", ...]:
    """The share of a key that has a cap."""
    if needs.key_id is None or needs.key_cap is None:
        return ()
    month = KeyMonth.objects.filter(key_id=needs.key_id, period=period.month).first() or KeyMonth()
    used, reserved = month.output_used, month.output_reserved
    return (Share("output", needs.key_cap, used, reserved, needs.output, is_of_key=True),)


def _shares(balance: Balance, needs: Needs, *, period: Period) -> tuple["Share", ...]:
    prompt, output = needs.prompt, needs.output
    used, reserved = balance.output_used, balance.output_reserved
    return (
        Share("input", balance.input_cap, balance.input_used, balance.input_reserved, prompt),
        Share("output", balance.output_cap, used, reserved, output),
        *_share_of_key(needs, period),
        Share(None, balance.day_cap, *balance.of_day(period.day), prompt + output),
    )


class Share(NamedTuple):
    """A cap (None: no cap) beside the used and reserved tokens, and the least that a call needs."""

    dimension: str | None
    cap: int | None
    used: int
    reserved: int
    wanted: int
    is_of_key: bool = False

    @property
    def left(self) -> int | None:
        return None if self.cap is None else self.cap - self.used - self.reserved

    @property
    def is_full(self) -> bool:
        return self.wanted > 0 and self.left is not None and self.left < self.wanted

    def spare(self) -> int:
        """Returns the remainder beside the call; negative where it does not fit."""
        return (self.left or 0) - self.wanted

    def needs(self) -> dict[str, int]:
        """Returns the least that the call needs, and the rest of the cap."""
        return {"requested": self.wanted, "remaining": max(0, self.left or 0)}

    @property
    def is_spent(self) -> bool:
        """Returns whether waiting for running calls would not help."""
        return self.wanted > 0 and self.cap is not None and self.used + self.wanted > self.cap

    def note(self, user_id: UUID, *, period: Period, now: datetime) -> None:
        """Alerts operators of a daily limit that is reached, but not of a single call that is too large for the rest.

        A limit too small for any small prompt is an operator's refusal, and raises no alert.
        """
        if self.cap is None:
            return
        least = LEAST_OUTPUT + small_prompt(self.cap)
        if self.cap - self.used < least <= self.cap:
            note_daily_limit(user_id=user_id, day=period.day, used=self.used, cap=self.cap, now=now)

    def refusal(self, reading: Reading) -> RefusedUntil:
        """The refusal until the next month or day, because waiting for running calls would not help."""
        detail, period = self._sentence(), Period.of(reading.now)
        numbers: dict[str, Any] = {
            "now": reading.now,
            "headers": {"x-should-retry": "false", **reading.headers},
            "cap": self.cap,
            "used": self.used,
            "reserved": self.reserved,
            **self.needs(),
        }
        if self.dimension is None:
            return DailyLimitReached(detail, until=period.next_day, **numbers)
        numbers["dimension"] = self.dimension
        return MonthlyCapExceeded(detail, until=period.next_month, **numbers)

    def _sentence(self) -> str | None:
        """The detail of the problem; None (its default) if everything is used up."""
        assert self.cap is not None
        if self.wanted > self.cap:
            return f"This call may need {self.wanted:,} tokens, more than the whole limit of {self.cap:,}."
        if self.is_of_key:
            return "This key's tokens for this month are used up. They reset on the first of next month."
        if self.cap - self.used < LEAST_OUTPUT:
            return None
        whose = f"this month's {self.dimension}" if self.dimension else "today's"
        return (
            f"This call may need {self.wanted:,} tokens, and {max(0, self.left or 0):,} of {whose} tokens are left. "
            "A shorter one may still fit."
        )
