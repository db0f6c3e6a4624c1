"""Spending limits: what all calls, or those to one provider, may cost in a day and in a month (UTC).

The worker counts them from daily usage, in the same run that counts this, and says by the row's own columns what is
reached. Every process reads the reached ones with its catalogue. Calls that run end as ever, so a limit is passed by
what is spent until the next count, and by them.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, Max, Q, QuerySet, Sum
from django.db.models.functions import TruncMinute

from accounts.audit import Actor, check_reason, reason_faults, record
from config.platform.db.advisory_locks import lock_until_commit
from config.platform.money import in_dollars
from config.platform.periods import Period
from config.platform.problems.problem import Fault, InvalidRequest, RefusedUntil
from usage.costs import MILLION
from usage.models import DayTotal, HourLatency, SpendLimit, UsageRecord
from usage.settlement import SHARE_PERCENT
from usage.spending.budgets import MOST

# The most time from a call's settlement until the next one is refused.
UNSEEN = timedelta(seconds=70)
WEEK, HOUR = timedelta(days=7), timedelta(hours=1)
# The hours of a week among which the most expensive minute is looked for.
BUSIEST = 6
_LOCK = "usage.spend_limits"


class SpendStopped(RefusedUntil):
    """A spending limit of the service is reached, or those of all providers that could answer. It says no amounts."""

    code = "spend_stopped"
    status = 503
    title = "Model calls stopped for now"
    default_detail = (
        "The service has reached a spending limit. Model calls start again when it resets."
    )

    def __init__(self, *, now: datetime, until: datetime) -> None:
        super().__init__(now=now, until=until, headers={"x-should-retry": "false"})


def stopped_until(limits: Iterable[SpendLimit], provider: str, *, now: datetime) -> datetime | None:
    """Until when no call to a provider begins; None while calls pass."""
    ends = (each.stopped_until(now) for each in limits if each.provider in ("", provider))
    return max(filter(None, ends), default=None)


def reached() -> QuerySet[SpendLimit]:
    """The limits that were reached when they were last counted, maybe on a day before."""
    return SpendLimit.objects.filter(
        Q(day_reached_at__isnull=False) | Q(month_reached_at__isnull=False)
    )


def warned() -> QuerySet[SpendLimit]:
    """The limits of which 80 % were spent when they were last counted, maybe on a day before."""
    return SpendLimit.objects.filter(
        Q(day_warned_at__isnull=False) | Q(month_warned_at__isnull=False)
    )


def set_spend_limit(
    *,
    provider: str,
    daily: int | None,
    monthly: int | None,
    reason: str,
    by: Actor,
    now: datetime,
) -> SpendLimit | None:
    """Sets what calls to a provider, or "" for all of them, may cost, in millionths of a dollar; without any amount
    the limit is removed.

    Raises ``InvalidRequest`` without a reason, or for a number that is no limit.
    """
    faults = reason_faults(reason)
    for name, amount in (("daily", daily), ("monthly", monthly)):
        if amount is not None and not 0 < amount <= MOST:
            faults.append(Fault(f"/{name}", "invalid", f"Above $0, up to {in_dollars(MOST)}."))
    if faults:
        raise InvalidRequest(errors=faults)
    with transaction.atomic():
        lock_until_commit(_LOCK)
        limit = SpendLimit.objects.filter(provider=provider).first()
        if limit is None and daily is None and monthly is None:
            return None
        before = _seen(limit)
        period = Period.of(now)
        limit = limit or SpendLimit(provider=provider, day=period.day, month=period.month)
        limit.daily, limit.monthly = daily, monthly
        _count([limit], now=now)
        is_removed = daily is None and monthly is None
        if not is_removed:
            limit.save()
        after = None if is_removed else _seen(limit)
        record("spend_limit:set", limit, by=by, now=now, reason=reason, before=before, after=after)
        if is_removed:
            limit.delete()
            return None
    return limit


def let_calls_pass(*, limit_id: int, reason: str, by: Actor, now: datetime) -> SpendLimit:
    """Lets calls pass a limit for the rest of the day (UTC). Raises ``InvalidRequest`` without a reason."""
    with _locked(limit_id, reason) as limit:
        before = _seen(limit)
        limit.passes_on = Period.of(now).day
        limit.save(update_fields=("passes_on",))
        seen = {"before": before, "after": _seen(limit)}
        record("spend_limit:passed", limit, by=by, now=now, reason=reason, **seen)
    return limit


def hold_again(*, limit_id: int, reason: str, by: Actor, now: datetime) -> SpendLimit:
    """Ends a day on which calls may pass a limit. Raises ``InvalidRequest`` without a reason."""
    with _locked(limit_id, reason) as limit:
        before = _seen(limit)
        limit.passes_on = None
        limit.save(update_fields=("passes_on",))
        seen = {"before": before, "after": _seen(limit)}
        record("spend_limit:held", limit, by=by, now=now, reason=reason, **seen)
    return limit


@contextmanager
def _locked(limit_id: int, reason: str) -> Iterator[SpendLimit]:
    check_reason(reason)
    with transaction.atomic():
        lock_until_commit(_LOCK)
        yield SpendLimit.objects.get(pk=limit_id)


def watch(*, now: datetime) -> int:
    """Counts what was spent towards each limit; returns the number of limits."""
    if not SpendLimit.objects.exists():
        return 0
    with transaction.atomic():
        # Under the lock, so that no other worker writes an older sum after this one.
        lock_until_commit(_LOCK)
        limits = list(SpendLimit.objects.all())
        _count(limits, now=now)
        counted = ("spent", "warned_at", "reached_at")
        columns = [f"{span}_{name}" for span in ("day", "month") for name in counted]
        SpendLimit.objects.bulk_update(limits, ["day", "month", "counted_at", *columns])
    return len(limits)


def _count(limits: list[SpendLimit], *, now: datetime) -> None:
    """Sets what was spent of the limits, in one query. A lowered charge makes it smaller."""
    period = Period.of(now)
    days = DayTotal.objects.filter(day__range=(period.month, period.day)).order_by()
    today = Sum("cost", filter=Q(day=period.day), default=0)
    spent = {
        name: (int(day), int(month))
        for name, day, month in days.values_list("provider").annotate(
            today=today, month=Sum("cost", default=0)
        )
    }
    for limit in limits:
        if (limit.day, limit.month) > (period.day, period.month):
            # Another worker is ahead of midnight.
            continue
        of = [spent.get(limit.provider, (0, 0))] if limit.provider else spent.values()
        if limit.day < period.day:
            limit.day_warned_at = limit.day_reached_at = None
        if limit.month < period.month:
            limit.month_warned_at = limit.month_reached_at = None
        limit.day, limit.month, limit.counted_at = period.day, period.month, now
        limit.day_spent = sum(day for day, _ in of)
        limit.month_spent = sum(month for _, month in of)
        limit.day_warned_at, limit.day_reached_at = _noticed(
            limit.daily, limit.day_spent, limit.day_warned_at, limit.day_reached_at, now=now
        )
        limit.month_warned_at, limit.month_reached_at = _noticed(
            limit.monthly, limit.month_spent, limit.month_warned_at, limit.month_reached_at, now=now
        )


def _noticed(
    amount: int | None,
    spent: int,
    warned_at: datetime | None,
    reached_at: datetime | None,
    *,
    now: datetime,
) -> tuple[datetime | None, datetime | None]:
    """Since when 80 % and all of an amount are spent."""
    is_warned = amount is not None and 100 * spent >= SHARE_PERCENT * amount
    is_reached = amount is not None and spent >= amount
    return (
        (warned_at or now) if is_warned else None,
        (reached_at or now) if is_reached else None,
    )


class Excess(NamedTuple):
    """The amounts, in millionths of a dollar, that may pass a limit: the week's dearest minute, what is spent at that
    pace until a call is refused, and the most that running calls may cost."""

    dearest_minute: int
    unseen: int
    running: int


def excess(provider: str, *, now: datetime) -> Excess:
    """Reads the calls of the week's busiest hours alone: a week of a large ledger would take seconds."""
    hours = HourLatency.objects.filter(hour__gte=now - WEEK)
    calls = UsageRecord.objects.filter(opened_at__gte=now - WEEK).order_by()
    running = UsageRecord.objects.open().filter(output_price__isnull=False).order_by()
    if provider:
        hours, calls = hours.filter(provider=provider), calls.filter(provider=provider)
        running = running.filter(provider=provider)
    most = hours.order_by().values("hour").annotate(number=Sum("calls")).order_by("-number")
    busiest = [row["hour"] for row in most[:BUSIEST]]
    within = (Q(opened_at__gte=each, opened_at__lt=each + HOUR) for each in busiest)
    minutes = calls.annotate(minute=TruncMinute("opened_at")).values("minute")
    spent = minutes.filter(reduce(or_, within, Q(pk__in=()))).annotate(spent=Sum("cost"))
    dearest = spent.aggregate(most=Max("spent"))["most"] or 0
    tokens = F("reserved_input") * F("input_price") + F("reserved_output") * F("output_price")
    held = running.aggregate(most=Sum(tokens))["most"] or 0
    return Excess(int(dearest), int(dearest * UNSEEN // timedelta(minutes=1)), int(held) // MILLION)


def _seen(limit: SpendLimit | None) -> dict[str, Any] | None:
    """The representation in the audit log."""
    if limit is None:
        return None
    amounts = {"daily": limit.daily, "monthly": limit.monthly}
    shown: dict[str, Any] = {
        name: in_dollars(each) for name, each in amounts.items() if each is not None
    }
    if limit.passes_on:
        shown["passes_on"] = limit.passes_on.isoformat()
    return shown
