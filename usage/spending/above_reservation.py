"""Finds settled calls that were charged more output than was reserved for them.

No call should need more: the reservation is the output limit that its provider got. So these are the ones whose report
may have been read wrongly, or was wrong. Smaller wrong charges look like any other and cannot be told apart.
"""

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import BigIntegerField, Count, ExpressionWrapper, F, Q, QuerySet, Sum

from config.platform.periods import Period, midnight
from usage.costs import MILLION
from usage.models import UsageRecord

_ABOVE = ExpressionWrapper(
    F("output_tokens") - F("reserved_output"), output_field=BigIntegerField()
)
_COST = ExpressionWrapper(_ABOVE * F("output_price"), output_field=BigIntegerField())


class Above(NamedTuple):
    """The calls of a client's month. ``tokens`` are those above the reservations, ``cost`` what these come to as
    output, in millionths of a dollar; ``unpriced`` is the number of calls without prices."""

    month: date
    client_id: UUID
    calls: int
    tokens: int
    cost: int
    unpriced: int


def charged_above(*, since: date | None, client_id: UUID | None, now: datetime) -> Iterator[Above]:
    """A line for each client and month that has such calls, by month.

    Each month is one query over its own part of the index by time, so that a large ledger is never read at once.
    """
    sums: dict[str, Any] = {
        "calls": Count("pk"),
        "above": Sum(_ABOVE),
        "spent": Sum(_COST, default=0),
        "unpriced": Count("pk", filter=Q(output_price=None)),
    }
    for month in _months(since, now):
        rows = _of_month(month, client_id).values_list("client_id").annotate(**sums)
        for client, calls, tokens, cost, unpriced in rows.order_by("client_id"):
            yield Above(month, client, calls, tokens, int(cost) // MILLION, unpriced)


def calls_above(month: date, *, client_id: UUID) -> QuerySet[UsageRecord]:
    """A client's calls of a month that were charged more output than was reserved, the dearest first."""
    return _of_month(month, client_id).order_by((_ABOVE).desc(), "id")


def _of_month(month: date, client_id: UUID | None) -> QuerySet[UsageRecord]:
    ends = Period.of(midnight(month)).next_month
    # By the index ``usage_by_time``, or for one client by ``usage_by_client_and_month``.
    records = UsageRecord.objects.filter(
        opened_at__gte=midnight(month), opened_at__lt=ends, period=month
    )
    if client_id is not None:
        records = records.filter(client_id=client_id)
    settled = records.filter(state=UsageRecord.State.SETTLED)
    return settled.filter(output_tokens__gt=F("reserved_output")).order_by()


def _months(since: date | None, now: datetime) -> Iterator[date]:
    if since is None:
        first = UsageRecord.objects.order_by("opened_at").values_list("opened_at", flat=True)[:1]
        since = Period.of(first[0]).month if first else Period.of(now).month
    month = since
    while midnight(month) <= now:
        yield month
        month = Period.of(midnight(month)).next_month.date()
