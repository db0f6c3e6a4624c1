"""Usage and money: usage, costs and a forecast of the month."""

from collections.abc import Iterator
from datetime import date
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse

from accounts.admin.exports import FORMATS
from config.console.charts import Bar, Chart, Strip, days_axis
from config.console.tables import Row, Table
from config.console.template_tags import dollars, short
from config.platform.periods import Period, last_months
from usage.admin.money.choosing import Chosen
from usage.admin.money.files import (
    EXPORT,
    MONTHS_SHOWN,
    export,
    statement,
    statements_of,
)
from usage.admin.money.groups import groups, names_of
from usage.admin.money.ranking import SUMMED, cells_of, numbered, ranking_of
from usage.spending.sums import COLUMNS, GROUPS, Course, Sums, course, total

VIEW = "usage.view_monthlyusage"


def page(request: HttpRequest) -> HttpResponse:
    if not request.user.has_perm(VIEW):
        raise PermissionDenied
    chosen = Chosen.of(request)
    before = last_months(chosen.since, 2)[1]
    if chosen.is_year:
        sums = chosen.scope.by_month(chosen.since, chosen.until)
    else:
        # The forecast uses the same days.
        sums = chosen.scope.by_day(before, chosen.until)
    here = Course({day: row for day, row in sums.items() if day >= chosen.since}, {})
    if chosen.is_now:
        here = course(sums, chosen.now)
    earlier = total(row for day, row in sums.items() if day < chosen.since)
    context = {
        **admin.site.each_context(request),
        "title": "Usage & money",
        "filters": list(_filters(chosen)),
        "kept": [("by", chosen.by)] if "by" in chosen.given else [],
        "facts": list(_facts(chosen, here, earlier, before)),
        "chart": _chart(chosen, here),
        "tabs": [(f"By {by}", chosen.address(by=by, all=""), by == chosen.by) for by in GROUPS],
        "ranking": ranking_of(chosen, here),
        "unpriced": here.whole.unpriced,
        "seen": chosen.seen,
        "routes": f"{reverse('admin:llmproxy_route_changelist')}?input_price__isnull=1"
        if request.user.has_perm("llmproxy.view_route")
        else "",
        "statements": statements_of(chosen, may_export=request.user.has_perm(EXPORT)),
        "exports": [
            (ending.upper(), f"export.{ending}?{urlencode(chosen.given)}") for ending in FORMATS
        ]
        if request.user.has_perm(EXPORT) and not chosen.scope.key_id
        else [],
    }
    return render(request, "admin/console/usage_and_money.html", context)


def _filters(chosen: Chosen) -> Iterator[dict[str, Any]]:
    last = last_months(chosen.now.day, MONTHS_SHOWN)
    months = [(f"{month:%Y-%m}", f"{month:%B %Y}") for month in last]
    years = [(str(year), f"Year {year}") for year in (chosen.now.day.year, chosen.now.day.year - 1)]
    yield _filter("Period", "period", [*months, *years], chosen.given.get("period", months[0][0]))
    for group in sorted(groups, key=lambda each: not each.is_offered):
        value = getattr(chosen.scope, COLUMNS[group.by])
        if group.is_offered or value:
            rows = group.rows() if group.is_offered else names_of(group.by, [value]).items()
            yield _filter(group.by.capitalize(), group.by, [("", "All"), *rows], value)


def _filter(label: str, name: str, options: list[tuple[Any, str]], value: Any) -> dict[str, Any]:
    if value and value not in dict(options):
        options.append((value, str(value)))
    return {"label": label, "name": name, "options": options, "value": value or ""}


def _facts(
    chosen: Chosen, here: Course, earlier: Sums, before: date
) -> Iterator[tuple[str, str, str]]:
    """Label, value and a note."""
    whole, last = here.whole, min(chosen.now.day, chosen.until)
    yield f"Spent to {last.day} {last:%b}", dollars(whole.cost), ""
    if chosen.is_now:
        off, end = f"± {dollars(here.spread)}", chosen.until
        yield f"Forecast to {end.day} {end:%b}", dollars(here.end), off
    if not chosen.is_year:
        yield f"{before:%B}, whole", dollars(earlier.cost), ""
    yield (
        "Tokens",
        short(whole.input + whole.output),
        f"{_percent(whole.cached, whole.input)} cached",
    )
    errors = f"{_percent(whole.errors, whole.calls)} errors"
    yield "Calls", f"{whole.calls:,}", f"{errors}, {whole.disconnected:,} disconnected"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def _chart(chosen: Chosen, here: Course) -> Chart:
    bars, rows, places, expected = [], [], _places(chosen), here.expected
    for place in places:
        sums, more = here.days.get(place, Sums()), expected.get(place, 0)
        label = f"{place:%B}" if chosen.is_year else f"{place.day} {place:%b}"
        href = chosen.address(period=f"{place:%Y-%m}") if chosen.is_year else chosen.calls(place)
        title = f"{label}: {dollars(sums.cost)}, {sums.calls:,} calls"
        title += f", {dollars(more)} more expected" if more else ""
        bars.append(Bar(label, sums.cost, href if sums.calls else "", title, more))
        if sums.calls or more:
            cells = [*cells_of(sums), *([dollars(more)] if expected else [])]
            rows.append(Row([label, *cells], href=href if sums.calls else ""))
    words = [f"{place:%b}" for place in places]
    columns = [*SUMMED, *(["Expected"] if expected else [])]
    return Chart(
        f"Money by {'month' if chosen.is_year else 'day'}",
        [Strip(bars, height=120)],
        words if chosen.is_year else days_axis(places, today=chosen.now.day),
        legend=[("first", "spent"), *([("forecast", "forecast")] if expected else [])],
        note="Each bar opens its month" if chosen.is_year else "Each bar opens its calls",
        table=Table(numbered("Month" if chosen.is_year else "Day", columns), rows),
    )


def _places(chosen: Chosen) -> list[date]:
    if chosen.is_year:
        return [chosen.since.replace(month=month) for month in range(1, 13)]
    return Period(chosen.since, chosen.since).days


site = cast("Any", admin.site)
view = site.admin_view
site.pages += [
    path("usage-and-money/", view(page), name="usage_and_money"),
    path("usage-and-money/export.<slug:ending>", view(export), name="usage_and_money_export"),
    path("usage-and-money/statement.<slug:ending>", view(statement), name="usage_statement"),
]
