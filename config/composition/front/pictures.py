"""The charts of the front page: money and tokens, calls and errors, sign-ins and refusals."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db.models import Count, Q, Sum, Value
from django.db.models.functions import TruncDate, TruncHour
from django.http import HttpRequest
from django.urls import reverse

from accounts.models import Session
from config.console.charts import Bar, Chart, Strip, days_axis, written
from config.console.template_tags import counted, dollars, short
from config.platform.periods import Period, midnight
from usage.models import Refusal, UsageRecord
from usage.spending.addresses import calls_between
from usage.spending.daily import SUMS
from usage.spending.sums import Scope, Sums

HOURS, DAYS = 24, 14
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def money(request: HttpRequest, now: datetime) -> Chart:
    """Money and tokens of each day of the month, with a forecast."""
    period = Period.of(now)
    course, days = Scope().course(period), period.days
    here = [course.days.get(day, Sums()) for day in days]
    cost, tokens = [each.cost for each in here], [each.input + each.output for each in here]
    return Chart(
        "Money and tokens by day",
        _strips(
            [f"{day.day} {day:%b}" for day in days],
            [("money", "Cost", "first", cost), ("tokens", "Tokens", "second", tokens)],
            _calls(request, [*map(midnight, days)], DAY, [each.calls for each in here]),
            [course.expected.get(day, 0) for day in days],
        ),
        days_axis(days, today=period.day),
        note=f"{period.month:%B}",
        href=reverse("admin:usage_and_money"),
        legend=[
            ("first", f"{dollars(course.whole.cost)}, forecast {dollars(course.end)}"),
            ("second", f"{short(sum(tokens))} tokens"),
        ],
    )


def calls(request: HttpRequest, now: datetime) -> Chart:
    """Calls and errors of each of the last hours."""
    this = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    hours = [this - HOUR * back for back in range(HOURS - 1, -1, -1)]
    lately = UsageRecord.objects.filter(opened_at__gte=hours[0]).order_by()
    by_hour = lately.values_list(TruncHour("opened_at", tzinfo=UTC))
    # No call runs for a day.
    runs = Count("pk", filter=Q(state=UsageRecord.State.OPEN, expires_at__gt=now))
    rows = by_hour.annotate(number=SUMS["calls"], wrong=SUMS["errors"], running=runs)
    found = {hour: numbers for hour, *numbers in rows}
    number, wrong, still = (
        [found.get(hour, (0, 0, 0))[which] for hour in hours] for which in range(3)
    )
    running = sum(still)
    percent = 100 * sum(wrong) / (sum(number) or 1)
    words = [f"{hour:%H:%M}" if place % 6 == 0 else "" for place, hour in enumerate(hours[:-1])]
    return Chart(
        "Calls and errors by hour",
        _strips(
            [f"{hour:%H:%M} UTC" for hour in hours],
            [("calls", "Calls", "first", number), ("calls", "Errors", "errors", wrong)],
            _calls(request, hours, HOUR, number),
        ),
        [*words, "now"],
        note="last 24 hours, UTC",
        href=reverse("admin:usage_usagerecord_changelist"),
        legend=[
            ("first", f"{counted(sum(number), 'call')}, {running:,} running"),
            ("errors", f"{counted(sum(wrong), 'error')}, {percent:.1f} %"),
        ],
    )


def sign_ins(request: HttpRequest, now: datetime) -> Chart:
    """Sign-ins and refused requests of each of the last days."""
    today = now.astimezone(UTC).date()
    days = [today - DAY * back for back in range(DAYS - 1, -1, -1)]
    begin = midnight(days[0])
    sessions = Session.objects.filter(started_at__gte=begin).order_by()
    of_day = sessions.values(kind=Value("started"), day=TruncDate("started_at", tzinfo=UTC))
    found: Any = of_day.annotate(number=Count("pk"))
    if request.user.has_perm("usage.view_refusal"):
        refusals = Refusal.objects.filter(minute__gte=begin).order_by()
        others = refusals.values(kind=Value("refused"), day=TruncDate("minute", tzinfo=UTC))
        found = found.union(others.annotate(number=Sum("number")), all=True)
    started: dict[date, int] = {}
    refused: dict[date, int] = {}
    for row in found:
        (started if row["kind"] == "started" else refused)[row["day"]] = row["number"]
    columns = [[each.get(day, 0) for day in days] for each in (started, refused)]
    return Chart(
        "Sign-ins and refusals by day",
        _strips(
            [f"{day.day} {day:%b}" for day in days],
            [
                ("calls", "Sign-ins", "first", columns[0]),
                ("calls", "Refusals", "errors", columns[1]),
            ],
            [""] * DAYS,
        ),
        days_axis(days, today=today),
        note="last 14 days",
        href=reverse("admin:accounts_session_changelist"),
        legend=[
            ("first", counted(sum(columns[0]), "sign-in")),
            ("errors", f"{sum(columns[1]):,} refused, {refused.get(today, 0):,} today"),
        ],
    )


def _strips(
    labels: Sequence[str],
    columns: Sequence[tuple[str, str, str, Sequence[int]]],
    hrefs: Sequence[str],
    more: Sequence[int] = (),
) -> list[Strip]:
    """Returns a strip for each column: unit, name, kind and values; the forecast is added to the first."""
    titles = [
        f"{label}: "
        + ", ".join(
            f"{written(values[place], unit)} {name.lower()}" for unit, name, _, values in columns
        )
        for place, label in enumerate(labels)
    ]
    none = [0] * len(labels)
    strips: list[Strip] = []
    for unit, name, kind, values in columns:
        expected = none if strips or not more else more
        places = zip(labels, values, hrefs, titles, expected, strict=True)
        bars = [Bar(*place, kind) for place in places]
        strips.append(Strip(bars, unit, head=name, height=32 if strips else 84))
    return strips


def _calls(
    request: HttpRequest, begins: Sequence[datetime], step: timedelta, numbers: Sequence[int]
) -> list[str]:
    """Returns the addresses of the calls of days or hours, for operators who may list them."""
    may = request.user.has_perm("usage.view_usagerecord")
    return [
        calls_between(since, since + step) if may and number else ""
        for since, number in zip(begins, numbers, strict=True)
    ]
