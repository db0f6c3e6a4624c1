"""The people who have reached a cap or the daily limit, and those near one, by their caps of now."""

from datetime import datetime
from typing import NamedTuple

from django.db.models import Q, QuerySet

from accounts.models import User
from usage.limits import LEAST_OUTPUT, Caps, effective_of_all, small_prompt
from usage.models import Alert, MonthlyUsage
from usage.periods import Period
from usage.settlement import SHARE_PERCENT

# Of so many alerts, the newest, people are compared with their caps.
COMPARED = 500
_OF_CAPS = [each for each in Alert.Kind if each.startswith(("input", "output", "day"))]


class Near(NamedTuple):
    """A person's greatest share of a cap, in tokens, and when operators were first told of it."""

    user: User
    since: datetime
    what: str
    used: int
    cap: int
    least: int

    @property
    def percent(self) -> int:
        return 100 * self.used // self.cap

    @property
    def is_reached(self) -> bool:
        return self.cap - self.used < self.least


def cap_alerts(now: datetime) -> QuerySet[Alert]:
    """The alerts of this month about caps, and of today about the daily limit: everybody near one has one."""
    period = Period.of(now)
    lately = Q(told_at=None) | Q(told_at__gte=period.month_start)
    return Alert.objects.filter(lately, kind__in=_OF_CAPS, period__in=(period.month, period.day))


def near_caps(alerts: QuerySet[Alert], now: datetime) -> list[Near]:
    """The people of these alerts who have used 80 % of a cap or more; reached ones first, then the latest."""
    period = Period.of(now)
    newest = alerts.order_by("-noticed_at").values_list("user", "noticed_at")[:COMPARED]
    since = {user: at for user, at in newest if user is not None}
    caps = effective_of_all(user_ids=since, now=now)
    months = MonthlyUsage.objects.filter(user__in=caps, period=period.month).select_related("user")
    shares = [
        max(known, key=lambda each: each.used / each.cap)
        for month in months
        if (known := _shares(month, caps[month.user_id], since[month.user_id], period))
    ]
    near = [each for each in shares if each.percent >= SHARE_PERCENT]
    return sorted(near, key=lambda each: (each.is_reached, each.since), reverse=True)


def _shares(month: MonthlyUsage, caps: Caps, since: datetime, period: Period) -> list[Near]:
    today = month.day_used if month.day == period.day else 0
    found = (
        ("cap of input tokens", month.input_used, caps.input, small_prompt),
        ("cap of output tokens", month.output_used, caps.output, lambda _: LEAST_OUTPUT),
        ("daily limit", today, caps.day, small_prompt),
    )
    return [
        Near(month.user, since, what, used, cap, least(cap))
        for what, used, cap, least in found
        if cap
    ]
