"""Latency and errors: how long calls take and how many fail, by model, provider and hour."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import floor
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.utils import timezone

from config.console.charts import Bar, Chart, Strip
from config.console.tables import Column, Link, Row, Table
from config.console.template_tags import lasting
from config.platform.db.replica import Look, look
from config.platform.periods import Period, midnight
from usage.admin.call_log.filters import ANY, ANY_ERROR
from usage.admin.money.groups import names
from usage.latency.hours import HOUR
from usage.latency.summaries import GROUPS, Summary, grouped, rows_between, whole_of
from usage.spending.addresses import calls_between

VIEW = "usage.view_monthlyusage"
PERIODS = {"today": "Today", "day": "24 hours", "week": "7 days"}
HEADS = (
    "Calls",
    "Errors",
    "Failed attempts",
    "First output, p50",
    "p95",
    "Whole answer, p50",
    "p95",
    "Tokens/s",
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The period, the group, and a model or a provider. What is unknown is ignored."""

    period: str
    by: str
    filters: dict[str, str]
    since: datetime
    until: datetime
    seen: Look
    may_list: bool

    @classmethod
    def of(cls, request: HttpRequest, *, now: datetime) -> "Chosen":
        given = {name: value.strip() for name, value in request.GET.dict().items()}
        period = given.get("period", "")
        period = period if period in PERIODS else "day"
        by = given.get("by", "")
        until = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR
        since = {
            "today": midnight(Period.of(now).day),
            "day": until - 24 * HOUR,
            "week": midnight(Period.of(now).day - timedelta(days=6)),
        }[period]
        return cls(
            period,
            by if by in GROUPS else "model",
            {name: given[name] for name in ("model", "provider") if given.get(name)},
            since,
            until,
            look(now=now),
            request.user.has_perm("usage.view_usagerecord"),
        )

    def address(self, **changed: str) -> str:
        """The address of this page with other choices."""
        chosen = {"period": self.period, "by": self.by, **self.filters, **changed}
        return f"{reverse('admin:latency')}?{urlencode(chosen)}"

    def calls(self, key: Any, **more: Any) -> str:
        """The address of a row's calls; "" for operators who may not list them."""
        since, until, filters = self.since, self.until, dict(self.filters)
        if isinstance(key, datetime):
            since, until = key, key + HOUR
        elif key:
            filters[self.by] = key
        return calls_between(since, until, **filters, **more) if self.may_list else ""

    def failed(self, key: Any) -> str:
        """The address of the calls with an attempt that failed at a provider, whoever answered them."""
        at = key if key and self.by == "provider" else self.filters.get("provider", ANY)
        others = replace(
            self,
            by="model" if self.by == "provider" else self.by,
            filters={name: value for name, value in self.filters.items() if name != "provider"},
        )
        return others.calls(None if self.by == "provider" else key, failed=at)


def page(request: HttpRequest) -> HttpResponse:
    if not request.user.has_perm(VIEW):
        raise PermissionDenied
    now = timezone.now()
    chosen = Chosen.of(request, now=now)
    rows = rows_between(chosen.since, chosen.until, using=chosen.seen.alias, **chosen.filters)
    whole = whole_of(rows)
    context = {
        **admin.site.each_context(request),
        "title": "Latency & errors",
        "kept": [("by", chosen.by)],
        "filters": list(_filters(chosen)),
        "facts": list(_facts(whole)),
        "chart": _chart(chosen, grouped(rows, "hour")),
        "tabs": [(f"By {by}", chosen.address(by=by), by == chosen.by) for by in GROUPS],
        "table": _table(chosen, grouped(rows, chosen.by), whole),
        "seen": chosen.seen,
    }
    return render(request, "admin/console/latency.html", context)


def _filters(chosen: Chosen) -> Iterator[dict[str, Any]]:
    offered = names("model", "provider")
    yield {
        "label": "Period",
        "name": "period",
        "options": [*PERIODS.items()],
        "value": chosen.period,
    }
    for name in ("model", "provider"):
        known, value = offered[name], chosen.filters.get(name, "")
        known += [value] if value and value not in known else []
        options = [("", "All"), *((each, each) for each in known)]
        yield {"label": name.capitalize(), "name": name, "options": options, "value": value}


def _facts(whole: Summary) -> Iterator[tuple[str, str, str]]:
    """Label, value and a note."""
    yield "Calls", f"{whole.calls:,}", f"{_part(whole.errors, whole.calls)} errors"
    for label, times in (
        ("First output", whole.first_output),
        ("Whole answer", whole.whole_answer),
    ):
        yield f"{label}, p50", _lasted(times(0.5)), f"p95 {_lasted(times(0.95))}"
    yield "Tokens a second", _speed(whole), "of streams"


def _lasted(milliseconds: float | None) -> str:
    return lasting(None if milliseconds is None else milliseconds / 1_000)


def _part(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def _speed(summary: Summary) -> str:
    return "–" if summary.speed is None else f"{summary.speed:,.0f}"


def _table(chosen: Chosen, found: dict[Any, Summary], whole: Summary | None) -> Table:
    """Returns the groups with most calls first, or the hours with the latest first, and the row of all."""
    ranked = list(found.items())
    if chosen.by == "hour":
        ranked.reverse()
    else:
        ranked.sort(key=lambda each: -each[1].calls)
    rows = [
        Row([_name(key), *_cells(chosen, key, summary)], href=chosen.calls(key))
        for key, summary in ranked
    ]
    if whole and len(rows) > 1:
        rows.append(Row(["All", *_cells(chosen, None, whole)], mark="total"))
    first = "Hour (UTC)" if chosen.by == "hour" else chosen.by.capitalize()
    columns = [Column(first), *(Column(head, "number") for head in HEADS)]
    return Table(columns, rows, "No calls in this time.")


def _name(key: Any) -> str:
    return f"{key:%-d %b %H:%M}" if isinstance(key, datetime) else str(key)


def _cells(chosen: Chosen, key: Any, summary: Summary) -> list[Any]:
    errors, failed, slow = summary.errors, summary.failed_attempts, summary.slow
    share = f"{errors:,} ({_part(errors, summary.calls)})" if errors else "0"
    return [
        summary.calls,
        Link(share, chosen.calls(key, **{"is": ANY_ERROR}) if errors else ""),
        Link(f"{failed:,}", chosen.failed(key) if failed else ""),
        _lasted(summary.first_output(0.5)),
        _lasted(summary.first_output(0.95)),
        _lasted(summary.whole_answer(0.5)),
        Link(
            _lasted(summary.whole_answer(0.95)),
            # Rounded down, so that it leaves out none of them.
            chosen.calls(key, slower=f"{floor(slow) / 1_000:.3f}") if slow else "",
        ),
        _speed(summary),
    ]


def _chart(chosen: Chosen, hours: dict[datetime, Summary]) -> Chart:
    """Returns calls and errors of each hour, and below them the times: p50, and as an outline p95."""
    number = (chosen.until - chosen.since) // HOUR
    axis = [chosen.since + HOUR * place for place in range(number)]
    found = [(hour, hours.get(hour, Summary())) for hour in axis]

    def strip(name: str, unit: str, kind: str, values: list[tuple[float, float]]) -> Strip:
        bars = [
            Bar(
                _name(hour),
                round(value),
                chosen.calls(hour) if each.calls else "",
                _title(hour, each),
                round(more),
                kind,
            )
            for (hour, each), (value, more) in zip(found, values, strict=True)
        ]
        return Strip(bars, unit, name=name, height=32 if kind == "errors" else 56)

    by_hour = replace(chosen, by="hour")
    return Chart(
        "By hour",
        [
            strip("Calls", "calls", "first", [(each.calls, 0) for _, each in found]),
            strip("Errors", "calls", "errors", [(each.errors, 0) for _, each in found]),
            strip("First output", "time", "first", [_half(each.first_output) for _, each in found]),
            strip("Whole answer", "time", "first", [_half(each.whole_answer) for _, each in found]),
        ],
        _words(axis),
        legend=[("first", "calls, p50"), ("errors", "errors"), ("forecast", "p95")],
        note="UTC. Each bar opens its calls",
        table=_table(by_hour, hours, whole=None),
    )


def _half(times: Callable[[float], float | None]) -> tuple[float, float]:
    """Returns p50, and how much p95 is above it."""
    half = times(0.5) or 0.0
    return half, (times(0.95) or 0.0) - half


def _title(hour: datetime, summary: Summary) -> str:
    first, whole = (
        f"{_lasted(times(0.5))} (p95 {_lasted(times(0.95))})"
        for times in (summary.first_output, summary.whole_answer)
    )
    numbers = f"{summary.calls:,} calls, {summary.errors:,} errors"
    return f"{_name(hour)}: {numbers}, first output {first}, whole answer {whole}"


def _words(axis: list[datetime]) -> list[str]:
    """Returns the labels of hours: days of a week, hours of a day."""
    if len(axis) > 24:
        return [f"{hour:%-d %b}" if hour.hour == 0 else "" for hour in axis]
    return [f"{hour:%H:%M}" if place % 6 == 0 else "" for place, hour in enumerate(axis)]


site = cast("Any", admin.site)
site.pages += [path("latency/", site.admin_view(page), name="latency")]
