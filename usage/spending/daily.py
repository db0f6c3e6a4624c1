"""Daily usage: the ledger's settled calls, summed by day, client, person, model and provider.

The worker counts every minute, in steps, and writes nothing where calls are written. Each admission and settlement
updates its person's month, so a month whose row has another version than the last time is counted again, from the
earliest day whose calls may have changed. What is counted is written whole, so counting twice changes nothing, and a
step that is killed was not counted. The totals of days and months are sums of daily usage, written in the same step.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import date, datetime, timedelta
from time import monotonic
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import CharField, Count, DateField, F, Func, Max, Min, Q, QuerySet, Sum, Value
from django.db.models.functions import Least

from config.platform.db.advisory_locks import lock_until_commit
from config.platform.periods import Period
from usage.models import CountedMonth, DailyUsage, DayTotal, MonthlyUsage, MonthTotal, UsageRecord
from usage.models.totals import DAILY_SUMS, Summed
from usage.spending.statements import abandoned_attempts

# People's months in one transaction, and how long a run begins new ones.
STEP = 100
RUN_SECONDS = 20.0
_LOCK = "usage.daily"
_End = UsageRecord.End
# The ends that are errors of the service or of a provider.
ERRORS = (_End.PROVIDER_FAILED, _End.UNREAD, _End.TIMEOUT, _End.CRASHED)
SUMS: dict[str, Any] = {
    "calls": Count("pk"),
    "errors": Count("pk", filter=Q(end__in=ERRORS)),
    "disconnected": Count("pk", filter=Q(end=_End.CLIENT_GONE)),
    "input_sum": Sum("input_tokens"),
    "cached_sum": Sum("cached_input_tokens"),
    "output_sum": Sum("output_tokens"),
    "cost_sum": Sum("cost", default=0),
    "unpriced": Count("pk", filter=Q(cost=None)),
}


class _Version(Func):
    """The version of a row, which changes with each update."""

    template = "usage_monthlyusage.xmin::text || usage_monthlyusage.ctid::text"
    output_field = CharField()


def count_days(*, now: datetime) -> int:
    """Counts what has changed since the last run; returns the number of people's months.

    What does not fit into a run, as after an upgrade, is left to the next ones, the newest months first.
    """
    counted, ends = 0, monotonic() + RUN_SECONDS
    while True:
        step = _step(now)
        counted += step
        if step < STEP or monotonic() > ends:
            return counted


def count_again(call: UsageRecord) -> None:
    """Queues the day of a changed call for recounting once the transaction commits."""
    # A step that reads now would write what it read over the mark.
    lock_until_commit(_LOCK)
    months = CountedMonth.objects.filter(month__user=call.user_id, month__period=call.period)
    months.update(version="", from_day=Least("from_day", call.day))


def _step(now: datetime) -> int:
    with transaction.atomic():
        lock_until_commit(_LOCK)
        # The versions are read before the calls: what changes in between is counted again by the next run.
        months = _due(now)
        # A call that is not settled or not admitted yet is of one of these days, or of a later one.
        open_days = dict(
            UsageRecord.objects.open()
            .filter(user_id__in={month.user_id for month in months})
            .order_by()
            .values_list("user_id")
            .annotate(Min("day"))
        )
        groups: dict[tuple[date, date], set[UUID]] = defaultdict(set)
        for month in months:
            groups[month.period, month.from_day or month.period].add(month.user_id)
        days: set[date] = set()
        for (period, since), people in groups.items():
            rows = list(_counted(people, period=period, since=since))
            _write(DailyUsage, rows)
            days |= {row.day for row in rows}
            until = Period(period, period).next_month.date()
            theirs = DailyUsage.objects.filter(
                user_id__in=people, day__gte=period, day__lt=until
            ).annotate(month=Value(period, output_field=DateField()))
            _write(MonthTotal, _added(MonthTotal, theirs))
        _write(DayTotal, _added(DayTotal, DailyUsage.objects.filter(day__in=days)))
        CountedMonth.objects.bulk_create(
            [
                CountedMonth(
                    month=month,
                    version=month.version,
                    from_day=min(month.day, open_days.get(month.user_id, month.day)),
                )
                for month in months
            ],
            update_conflicts=True,
            unique_fields=["month"],
            update_fields=["version", "from_day"],
        )
    return len(months)


def _due(now: datetime) -> list[Any]:
    """The next months to count: changed ones, and then those that want it, the newest of them first."""
    months = MonthlyUsage.objects.annotate(version=_Version(), from_day=F("counted__from_day"))
    asked = months.filter(counted__version="").order_by("-pk")[:STEP]
    # The oldest first, because the last day below says that those before it are counted.
    changed = months.filter(Q(counted=None) | ~Q(counted__version__in=("", F("version")))).order_by(
        "period", "pk"
    )
    today = Period.of(now).day
    if last := DailyUsage.objects.aggregate(last=Max("day"))["last"]:
        # No call runs for a month: what has changed since then is of that month or of the one before.
        before = min(last, today).replace(day=1) - timedelta(days=1)
        changed = changed.filter(period__gte=before.replace(day=1))
    found = {month.pk: month for month in (*changed[:STEP], *asked)}
    return list(found.values())[:STEP]


def _write(table: Any, rows: Iterable[Summed]) -> None:
    table.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=table.KEY, update_fields=DAILY_SUMS
    )


def _added(table: Any, rows: QuerySet[DailyUsage]) -> Iterator[Summed]:
    """The rows of a table that sums up daily usage."""
    sums = {f"{name}_sum": Sum(name) for name in DAILY_SUMS}
    for row in rows.order_by().values_list(*table.KEY).annotate(**sums):
        yield table(**dict(zip((*table.KEY, *DAILY_SUMS), row, strict=True)))


def _counted(people: Collection[UUID], *, period: date, since: date) -> Iterator[DailyUsage]:
    """The sums of these people's days from ``since`` on."""
    calls = UsageRecord.objects.filter(
        user_id__in=people, period=period, day__gte=since, state=UsageRecord.State.SETTLED
    ).order_by()
    sums: dict[tuple[Any, ...], dict[str, int]] = {}
    for row in calls.values_list(*DailyUsage.KEY).annotate(**SUMS):
        size = len(DailyUsage.KEY)
        sums[row[:size]] = dict(zip(DAILY_SUMS, row[size:], strict=True))
    for call, attempt in abandoned_attempts(calls):
        key = (call.day, call.client_id, call.user_id, call.model, attempt.provider)
        row = sums.setdefault(key, dict.fromkeys(DAILY_SUMS, 0))
        row["cost"] += attempt.cost or 0
    for key, found in sums.items():
        yield DailyUsage(**dict(zip(DailyUsage.KEY, key, strict=True)), **found)
