"""A person's usage of a month: totals from the running row, series from the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Aggregate, BigIntegerField, Count, F, FloatField, Q, Sum, Value
from django.db.models.functions import Cast

from config.platform.periods import Period
from usage.limits import PlanCaps, balance
from usage.models import UsageRecord, UsageRecordQuerySet

SUMMED = ("input", "output", "calls", "abandoned")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Tokens of one kind: used, reserved by running calls, allowed (None: no cap), and remaining."""

    used: int
    in_flight: int
    cap: int | None

    @property
    def remaining(self) -> int | None:
        return None if self.cap is None else max(0, self.cap - self.used - self.in_flight)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayShare(Share):
    """A share of today, and the beginning of the next day."""

    resets_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One person's month, as ``/v1/usage/me`` returns it."""

    period: Period
    input: Share
    output: Share
    day: DayShare
    calls: int
    by_day: list[dict[str, Any]]
    by_model: list[dict[str, Any]]

    @property
    def abandoned(self) -> int:
        """The calls of the month whose client has left."""
        return sum(each["abandoned"] for each in self.by_day)


def summary(*, user_id: UUID, plan: PlanCaps, now: datetime) -> Summary:
    """One person's month at ``now``, by two short queries: one reads the totals, one the records of that month."""
    period = Period.of(now)
    stands = balance(user_id=user_id, plan=plan, now=now)
    day_used, day_reserved = stands.of_day(period.day)
    rows = _by_day_and_model(user_id=user_id, period=period)
    by_day = _series(rows, "day")
    return Summary(
        period=period,
        input=Share(used=stands.input_used, in_flight=stands.input_reserved, cap=stands.input_cap),
        output=Share(
            used=stands.output_used, in_flight=stands.output_reserved, cap=stands.output_cap
        ),
        day=DayShare(
            used=day_used, in_flight=day_reserved, cap=stands.day_cap, resets_at=period.next_day
        ),
        calls=sum(each["calls"] for each in by_day),
        by_day=by_day,
        by_model=_series(rows, "model"),
    )


def _by_day_and_model(*, user_id: UUID, period: Period) -> list[dict[str, Any]]:
    # Only columns of an index each, so that PostgreSQL reads no record.
    month = UsageRecord.objects.filter(user_id=user_id, period=period.month).order_by()
    none, number = Value(0, output_field=BigIntegerField()), Count("*")
    rows = month.values("day", "model").annotate(
        input=Sum("input_tokens"), output=Sum("output_tokens"), calls=number, abandoned=none
    )
    left = month.left().values("day", "model")
    counted = left.annotate(input=none, output=none, calls=none, abandoned=number)
    return [dict(row) for row in rows.union(counted, all=True)]


def _series(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """The sums of the rows by one of their keys, in its order."""
    sums: dict[Any, dict[str, Any]] = {}
    for row in rows:
        into = sums.setdefault(row[key], {key: row[key], **dict.fromkeys(SUMMED, 0)})
        for name in SUMMED:
            into[name] += row[name]
    return [sums[each] for each in sorted(sums)]


class _Percentile(Aggregate):
    """PostgreSQL's interpolated percentile of an expression."""

    template = "percentile_cont(%(share)s) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = FloatField()


def input_ratios(
    *,
    since: datetime,
    since_by_route: Mapping[tuple[str, str], datetime],
    percentile: float,
    least_counted: int,
    least_calls: int,
) -> dict[tuple[str, str], float]:
    """The reported over the counted input of each route's whole answers since then, at that percentile.

    A route is a model and a provider by their names; some have a later time of their own. Shorter prompts and routes
    with fewer calls are left out.
    """
    reported = _reported(since, since_by_route).filter(counted_input__gte=least_counted)
    ratio = Cast("input_tokens", FloatField()) / F("counted_input")
    rows = (
        reported.values("model", "provider")
        .annotate(calls=Count("id"), ratio=_Percentile(ratio, share=percentile))
        .filter(calls__gte=least_calls)
        .values_list("model", "provider", "ratio")
    )
    return {(model, provider): found for model, provider, found in rows}


def thinking_routes(
    *, since: datetime, since_by_route: Mapping[tuple[str, str], datetime]
) -> set[tuple[str, str]]:
    """Model and provider, by their names, whose provider reported reasoning tokens for most of their calls."""
    rows = (
        _reported(since, since_by_route)
        .values_list("model", "provider")
        .annotate(thought=Count("id", filter=Q(reasoning_tokens__gt=0)), calls=Count("id"))
        .filter(thought__gt=F("calls") / 2.0)
    )
    return {(model, provider) for model, provider, *_ in rows}


def _reported(
    since: datetime, since_by_route: Mapping[tuple[str, str], datetime]
) -> UsageRecordQuerySet:
    """The whole answers since then that their providers reported; some routes have a later time of their own."""
    reported = UsageRecord.objects.filter(
        opened_at__gte=since, source=UsageRecord.Source.PROVIDER, end=UsageRecord.End.DONE
    )
    for (model, provider), begins in since_by_route.items():
        reported = reported.exclude(model=model, provider=provider, opened_at__lt=begins)
    return reported.order_by()
