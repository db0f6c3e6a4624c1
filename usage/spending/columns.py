"""The running month of people and clients as columns of lists, each a look-up by index for a row.

They are read from the totals that the worker counts every minute, never from calls. A list that is sorted by one reads
the month's totals once; in any other order PostgreSQL looks up the shown rows alone.
"""

from datetime import datetime
from typing import Any

from django.db.models import BigIntegerField, Count, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from config.platform.periods import Period
from usage.models import DailyUsage, MonthTotal


def spent_by_person(*, now: datetime) -> Coalesce:
    """The cost of a person's calls this month, at every client that they belonged to."""
    period = Period.of(now)
    days = DailyUsage.objects.filter(
        user=OuterRef("pk"), day__range=(period.month, period.days[-1])
    )
    return _of_each(days, "user", Sum("cost"))


def spent_by_client(*, now: datetime) -> Coalesce:
    """The cost of a client's calls this month."""
    return _of_each(_months(now), "client_id", Sum("cost"))


def callers_of_client(*, now: datetime) -> Coalesce:
    """The number of a client's people who have called models this month."""
    return _of_each(_months(now).filter(calls__gt=0), "client_id", Count("pk"))


def last_day_of_client() -> Subquery:
    """The last day (UTC) with a call of a client; empty if there was none."""
    days = DailyUsage.objects.filter(client_id=OuterRef("pk"), calls__gt=0).order_by("-day")
    return Subquery(days.values("day")[:1])


def _months(now: datetime) -> QuerySet[MonthTotal]:
    return MonthTotal.objects.filter(month=Period.of(now).month, client_id=OuterRef("pk"))


def _of_each(rows: QuerySet[Any], key: str, number: Any) -> Coalesce:
    found = rows.order_by().values(key).annotate(number=number).values("number")
    return Coalesce(Subquery(found), 0, output_field=BigIntegerField())
