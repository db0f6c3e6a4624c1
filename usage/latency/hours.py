"""The latency and errors of each hour, which the worker counts every minute from the ledger's own columns.

An hour is counted again for as long as calls that were admitted in it may still run.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import log
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import (
    Case,
    Count,
    DurationField,
    ExpressionWrapper,
    F,
    FloatField,
    IntegerField,
    Max,
    Min,
    Q,
    QuerySet,
    Sum,
    When,
)
from django.db.models.functions import Cast, Coalesce, Extract, Floor, Greatest, Ln, TruncHour

from config.platform.db.advisory_locks import lock_until_commit
from usage.latency.buckets import GROWTH
from usage.models import HourLatency, UsageRecord
from usage.spending.daily import ERRORS

HOUR, KEPT = timedelta(hours=1), timedelta(days=8)
# A worker settles a call at most this long after its own limit.
UNSETTLED = timedelta(hours=1)
# The hours of before an upgrade that one run counts.
STEP = 6
_LOCK = "usage.latency"
_COUNTED = ("calls", "errors", "failed_attempts", "output_tokens", "output_ms", "first", "whole")
_DONE = Q(end=UsageRecord.End.DONE)
# An answer in one piece is its own first output. Streams of releases before have the time of their first byte alone.
FIRST_OUTPUT = Coalesce(
    "first_output_at", Case(When(streamed=True, then=F("first_byte_at"))), "settled_at"
)


def milliseconds(since: Any, until: Any) -> Any:
    """An expression of the time between two instants."""
    passed = ExpressionWrapper(until - since, output_field=DurationField())
    return Cast(Extract(passed, "epoch"), FloatField()) * 1000.0


TO_FIRST = milliseconds(F("opened_at"), FIRST_OUTPUT)
TO_END = milliseconds(F("opened_at"), F("settled_at"))


def count_hours(*, now: datetime) -> int:
    """Counts the latest hours and, some at a time, those before the first one counted; returns the number of rows."""
    oldest = _hour(now - KEPT)
    longest = timedelta(seconds=settings.LLM_MAX_SECONDS)
    with transaction.atomic():
        lock_until_commit(_LOCK)
        HourLatency.objects.filter(hour__lt=oldest).delete()
        counted = HourLatency.objects.aggregate(first=Min("hour"), last=Max("hour"))
        # As the last hour was counted, calls of the one before may have been running.
        running = min(now - UNSETTLED, counted["last"] or now) - longest
        since = max(oldest, _hour(running))
        rows = _write(since, _hour(now) + HOUR)
        first = min(since, counted["first"] or since)
        for hour in _hours_before(first, oldest):
            rows += _write(hour, hour + HOUR)
    return rows


def settled_between(since: datetime, until: datetime) -> QuerySet[UsageRecord]:
    """The settled calls that were admitted in this time, in no order."""
    state = UsageRecord.State.SETTLED
    return UsageRecord.objects.filter(
        opened_at__gte=since, opened_at__lt=until, state=state
    ).order_by()


def _hours_before(first: datetime, oldest: datetime) -> Iterator[datetime]:
    """Yields the last hours with calls that are not counted yet."""
    for _ in range(STEP):
        last = settled_between(oldest, first).aggregate(last=Max("opened_at"))["last"]
        if last is None:
            return
        first = _hour(last)
        yield first


def _write(since: datetime, until: datetime) -> int:
    rows = _counted(settled_between(since, until))
    HourLatency.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=HourLatency.KEY, update_fields=_COUNTED
    )
    return len(rows)


def _counted(calls: QuerySet[UsageRecord]) -> list[HourLatency]:
    """The rows of these calls, in two queries: their numbers and times, and the attempts at them that failed."""
    found: dict[tuple[Any, ...], HourLatency] = {}
    hour = TruncHour("opened_at", tzinfo=UTC)

    def row(*key: Any) -> HourLatency:
        if key not in found:
            named = dict(zip(HourLatency.KEY, key, strict=True))
            found[key] = HourLatency(**named, first=Counter(), whole=Counter())
        return found[key]

    streamed = _DONE & Q(streamed=True)
    grouped = calls.annotate(hour=hour, first=_bucket(TO_FIRST), whole=_bucket(TO_END))
    for *key, first, whole, number, wrong, tokens, ms in grouped.values_list(
        "hour", "model", "provider", "first", "whole"
    ).annotate(
        number=Count("pk"),
        wrong=Count("pk", filter=Q(end__in=ERRORS)),
        tokens=Sum("output_tokens", filter=streamed, default=0),
        ms=Sum(TO_END - TO_FIRST, filter=streamed, default=0.0),
    ):
        each = row(*key)
        each.calls += number
        each.errors += wrong
        each.output_tokens += tokens
        each.output_ms += round(ms)
        if whole is not None:
            each.first[first] += number
            each.whole[whole] += number
    failed = calls.filter(failures__isnull=False).values_list(hour, "model", "failures")
    for at, model, failures in failed.iterator():
        for attempt in failures["attempts"]:
            row(at, model, attempt["provider"]).failed_attempts += 1
    return list(found.values())


def _bucket(ms: Any) -> Any:
    """Buckets of calls that were done: others would make a provider that refuses at once look quick."""
    number = Cast(Floor(Ln(Greatest(ms, 1.0)) / log(GROWTH)), IntegerField())
    return Case(When(_DONE, then=number))


def _hour(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
