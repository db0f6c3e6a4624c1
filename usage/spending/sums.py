"""Spending: what calls used and cost, by day or month, and ranked by client, person, model, provider, key or label.

Those of keys and labels are sums of the ledger, without attempts that were abandoned; all others are of daily usage.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from math import sqrt
from statistics import median, pvariance
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import F, QuerySet, Sum
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import TruncMonth

from config.platform.periods import Period
from usage.models import DailyUsage, DayTotal, MonthTotal, UsageRecord
from usage.models.totals import DAILY_SUMS
from usage.spending.daily import SUMS

# By what sums are ranked: its column, of daily usage or of the ledger.
COLUMNS: Mapping[str, str] = {
    "client": "client_id",
    "person": "user_id",
    "model": "model",
    "provider": "provider",
    "key": "key_id",
    "label": "labels",
}
GROUPS: Mapping[str, Any] = {
    **{by: F(column) for by, column in COLUMNS.items()},
    "label": KeyTextTransform("user", "labels"),
}
_DAILY: Mapping[str, Any] = {f"{name}_sum": Sum(name) for name in DAILY_SUMS}
# A forecast looks back this far.
FOUR_WEEKS = timedelta(weeks=4)


class Sums(NamedTuple):
    """``input`` includes ``cached``; the cost is in millionths of a dollar, of the calls with prices."""

    calls: int = 0
    errors: int = 0
    disconnected: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: int = 0
    unpriced: int = 0


def total(rows: Iterable[Sums]) -> Sums:
    return Sums(*map(sum, zip(*rows, strict=True)))


@dataclass(frozen=True, slots=True)
class Course:
    """The running month: its days so far, what each from today on is expected to cost, and how far off that may be."""

    days: Mapping[date, Sums]
    expected: Mapping[date, int]
    spread: int = 0

    @property
    def whole(self) -> Sums:
        return total(self.days.values())

    @property
    def end(self) -> int:
        """Returns the expected cost at the end."""
        return self.whole.cost + sum(self.expected.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A filter of calls by client, person, model, provider or key; None: all.

    ``using``: the database that is asked, where not the service's own.
    """

    client_id: UUID | None = None
    user_id: UUID | None = None
    model: str | None = None
    provider: str | None = None
    key_id: UUID | None = None
    using: str | None = None

    def by_day(self, since: date, until: date) -> dict[date, Sums]:
        """The sums of each day that has calls; both ends are included."""
        rows, sums = self._rows(since, until, {"day"})
        return {day: Sums(*row) for day, *row in rows.values_list("day").annotate(**sums)}

    def by_month(self, since: date, until: date) -> dict[date, Sums]:
        """The sums of each month that has calls, by its first day."""
        rows, sums = self._rows(since, until, {"day"})
        months = rows.values_list(TruncMonth("day")).annotate(**sums)
        return {month: Sums(*row) for month, *row in months}

    def course(self, period: Period) -> Course:
        """The course of this month."""
        since = min(period.month, period.day - FOUR_WEEKS)
        return course(self.by_day(since, period.days[-1]), period)

    def ranking(self, by: str, since: date, until: date, *, most: int) -> list[tuple[Any, Sums]]:
        """The first of a group in whole months, the most expensive first, without calls that have no key or label."""
        rows, sums = self._rows(since, until, {by})
        named = rows.annotate(named=GROUPS[by]).filter(named__isnull=False)
        if by in {"person", "key"}:
            # Of thousands the cost alone, and of the first all sums.
            costs = named.values("named").annotate(cost_sum=sums["cost_sum"])
            first = costs.order_by("-cost_sum", "named").values("named")[:most]
            named = named.filter(named__in=first)
        ranked = named.values_list("named").annotate(**sums).order_by("-cost_sum", "named")
        return [(name, Sums(*row)) for name, *row in ranked[:most]]

    def costs_of(
        self, by: str, names: Iterable[Any], since: date, until: date
    ) -> dict[Any, dict[date, int]]:
        """Returns the daily costs of a group's rows."""
        rows, sums = self._rows(since, until, {by, "day"})
        costs: dict[Any, dict[date, int]] = {name: {} for name in names}
        # By the columns themselves, which indexes know.
        named = rows.filter(**{f"{COLUMNS[by]}__in": costs}).values_list(COLUMNS[by], "day")
        for name, day, cost in named.annotate(cost_sum=sums["cost_sum"]):
            costs[name][day] = cost
        return costs

    def daily(self, since: date, until: date) -> QuerySet[DailyUsage]:
        """The rows of daily usage themselves; they know no keys."""
        return DailyUsage.objects.using(self.using).filter(
            day__range=(since, until), **self._chosen
        )

    @property
    def _chosen(self) -> dict[str, Any]:
        given = asdict(self).items()
        return {name: value for name, value in given if value is not None and name != "using"}

    def _rows(
        self, since: date, until: date, wanted: set[str]
    ) -> tuple[QuerySet[Any], Mapping[str, Any]]:
        """The fewest rows that know what is chosen and wanted, in no order, and their sums in that of ``Sums``."""
        columns = {COLUMNS.get(name, name) for name in wanted} | self._chosen.keys()
        if columns & {"key_id", "labels"}:
            records = UsageRecord.objects.using(self.using).filter(
                # Indexes know months.
                period__range=(since.replace(day=1), until),
                day__range=(since, until),
                state=UsageRecord.State.SETTLED,
                **self._chosen,
            )
            return records.order_by(), SUMS
        if columns <= set(DayTotal.KEY):
            totals = DayTotal.objects.using(self.using).filter(
                day__range=(since, until), **self._chosen
            )
            return totals.order_by(), _DAILY
        if columns <= set(MonthTotal.KEY):
            months = MonthTotal.objects.using(self.using).filter(
                month__range=(since, until), **self._chosen
            )
            return months.order_by(), _DAILY
        return self.daily(since, until).order_by(), _DAILY


def course(sums: Mapping[date, Sums], period: Period) -> Course:
    """The course of this month, by the sums of its days and of four weeks before today."""
    costs = {day: row.cost for day, row in sums.items()}
    here = {day: row for day, row in sums.items() if day >= period.month}
    return Course(here, forecast(costs, period), spread(costs, period))


def forecast(costs: Mapping[date, int], period: Period) -> dict[date, int]:
    """Forecasts the cost of each day from today: the median of its weekday in the last four weeks.

    Of today that is what goes beyond what it has cost already. Days before the first that cost anything do not count.
    """
    expected = {}
    for day in period.days[period.day.day - 1 :]:
        usual = int(median(_alike(day, costs, period) or [0]))
        expected[day] = max(0, usual - costs.get(day, 0)) if day == period.day else usual
    return expected


def spread(costs: Mapping[date, int], period: Period) -> int:
    """The standard deviation of what the days still to come have cost in the four weeks before."""
    seen = [_alike(day, costs, period) for day in period.days[period.day.day - 1 :]]
    return int(sqrt(sum(pvariance(each) for each in seen if each)))


def _alike(day: date, costs: Mapping[date, int], period: Period) -> list[int]:
    since = period.day - FOUR_WEEKS
    first = min((each for each in costs if since <= each < period.day), default=period.day)
    weekday = (day - timedelta(weeks=back) for back in range(9))
    return [costs.get(each, 0) for each in weekday if first <= each < period.day]
