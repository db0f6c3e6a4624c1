"""Rows for each kind of attention about usage."""

from config.platform.periods import Period
from tests.console.bad_days import HOUR, Day
from usage.models import (
    Alert,
    Budget,
    MonthlyUsage,
    Override,
    Refusal,
    SpendLimit,
    UsageRecord,
)
from usage.spending.budgets import set_budget
from usage.spending.spend_limits import set_spend_limit
from usage.stops import stop_model_calls


def bad_day(day: Day) -> None:
    period = Period.of(day.now)
    set_budget(
        client_id=day.world.client.pk, monthly=10_000_000, reason="x", by=day.by, now=day.now
    )
    Budget.objects.update(
        period=period.month, spent=11_000_000, warned_at=day.now - HOUR, exceeded_at=day.now
    )
    for person in day.world.people[:2]:
        stop_model_calls(user_id=person.pk, ends_at=None, reason="Loops.", by=day.by, now=day.now)
    MonthlyUsage.objects.filter(user__in=day.world.people[2:4]).update(output_used=10**9)
    for person in day.world.people[2:4]:
        Refusal.objects.create(
            user=person,
            code="monthly_cap_exceeded",
            status=429,
            minute=day.now,
            last_at=day.now,
            number=3,
        )
    limit = set_spend_limit(
        provider="", daily=10_000_000, monthly=None, reason="x", by=day.by, now=day.now
    )
    assert limit is not None
    spent = {"day_spent": 11_000_000, "day_warned_at": day.now - HOUR, "day_reached_at": day.now}
    SpendLimit.objects.filter(pk=limit.pk).update(**spent)
    Override.objects.filter(user=day.world.people[1]).update(ends_at=day.now + 20 * HOUR)
    UsageRecord.objects.open().filter(user=day.world.person).update(expires_at=day.now - HOUR)
    same = {
        "user": day.world.person,
        "period": period.day,
        "used": 34,
        "cap": 20,
        "noticed_at": day.now,
    }
    Alert.objects.create(kind=Alert.Kind.ABANDONED, **same)
