"""The month on a client's page: its budget, its people's usage, and its refusals."""

from datetime import date, datetime, timedelta
from itertools import accumulate
from typing import Any, NamedTuple, cast

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from accounts.models import Client, User
from config.composition.person_state import chip_of, with_state
from config.console.charts import Bar, Chart, Curve, Strip, days_axis, written
from config.console.navigation import page_of
from config.console.tables import Column, Link, Menu, Row, Table
from config.console.template_tags import dollars, share, short
from config.platform.periods import Period, midnight
from llmproxy.calls.explanation import EXPLAINING
from usage.admin.money.ranking import part_of
from usage.limits import effective_of_all
from usage.models import Budget, MonthlyUsage
from usage.spending.addresses import calls_between
from usage.spending.sums import Course, Scope, Sums

PEOPLE_SHOWN = 10
MODELS_SHOWN = 6


class Month(NamedTuple):
    """A client's month: cost so far, forecast, and models."""

    course: Course
    chart: Chart
    models: Table


def month_of(client: Client, budget: Budget | None, *, now: datetime) -> Month:
    period, scope = Period.of(now), Scope(client_id=client.pk)
    course = scope.course(period)
    ranked = scope.ranking("model", period.month, period.days[-1], most=MODELS_SHOWN)
    page = f"{reverse('admin:usage_and_money')}?client={client.pk}"
    rows = [
        Row(
            [name, part_of(row, course.whole), dollars(row.cost)],
            f"{page}&{urlencode({'model': name})}",
        )
        for name, row in ranked
    ]
    columns = [Column("Model"), Column("Share", "number"), Column("Cost", "number")]
    chart = _chart(client, course, budget, period)
    return Month(course, chart, Table(columns, rows, "No calls this month."))


def _chart(client: Client, course: Course, budget: Budget | None, period: Period) -> Chart:
    """Returns the cost so far against the budget, above the cost of each day."""
    so_far = {day: course.days.get(day, Sums()) for day in period.days if day <= period.day}
    bars = []
    for day, row in so_far.items():
        begins = midnight(day)
        calls = calls_between(begins, begins + timedelta(days=1), client=client.pk)
        title = f"{day.day} {day:%b}: {dollars(row.cost)}, {row.calls:,} calls"
        href = calls if row.calls else ""
        bars.append(Bar(f"{day.day} {day:%b}", row.cost, href, title))
    reached = accumulate(row.cost for row in so_far.values())
    curve = Curve(
        [bar._replace(value=cost) for bar, cost in zip(bars, reached, strict=True)],
        line=(budget.monthly, f"{written(budget.monthly, 'money')} budget") if budget else None,
        name="So far",
        height=120,
        end=(course.end, f"{written(course.end, 'money')} forecast"),
    )
    strips = [curve, Strip(bars, name="By day", height=48)]
    return Chart("Spent this month", strips, days_axis(period.days, today=period.day))


def people_of(client: Client, *, by: HttpRequest, now: datetime) -> tuple[Table, list[User]]:
    """Returns the table of people and the people: the highest costs this month, then others by email."""
    period, operator = Period.of(now), cast("User", by.user)
    sees_usage = operator.has_perm("usage.view_monthlyusage")
    ranked: dict[Any, Sums] = {}
    if sees_usage:
        scope = Scope(client_id=client.pk)
        ranked = dict(scope.ranking("person", period.month, period.days[-1], most=PEOPLE_SHOWN))
    theirs = with_state(User.objects.filter(client=client, erased_at=None), now=now)
    theirs = theirs.select_related("model_calls_stop")
    spenders = theirs.in_bulk(list(ranked))
    users = [spenders[key] for key in ranked if key in spenders]
    users += theirs.exclude(pk__in=spenders)[: PEOPLE_SHOWN - len(users)]
    shares = _shares(users, period.month, now=now) if sees_usage else {}
    people: Any = admin.site.get_model_admin(User)
    explains = all(map(operator.has_perm, EXPLAINING))
    rows = []
    for user in users:
        cells: list[Any] = [user.email, chip_of(user), user.last_seen]
        if sees_usage:
            sums = ranked.get(user.pk, Sums())
            cells += [sums.calls, short(sums.input), short(sums.output), dollars(sums.cost)]
            cells.append(shares.get(user.pk, ""))
        acts = []
        if explains:
            acts.append(Link("Explain", reverse("admin:accounts_user_explain", args=[user.pk])))
        for label, name in (("Restart…", "restart_calls"), ("Stop…", "stop_calls")):
            if address := people.link(by, name, user):
                acts.append(Link(label, address))
        rows.append(Row([*cells, Menu(user.email, acts)], href=page_of(user)))
    heads = ("Calls", "Tokens in", "Out", "Cost", "Of cap") if sees_usage else ()
    columns = [Column("Person"), Column("Status", "chip"), Column("Last seen", "time")]
    columns += [Column(head, "number") for head in heads]
    return Table([*columns, Column("", "acts")], rows, "Nobody has been invited yet."), users


def _shares(users: list[User], month: date, *, now: datetime) -> dict[Any, str]:
    """Returns each person's greater share of a monthly cap."""
    caps = effective_of_all(user_ids=[user.pk for user in users], now=now)
    found = {}
    for row in MonthlyUsage.objects.filter(user__in=users, period=month):
        used = zip((row.input_used, row.output_used), caps.get(row.user_id, ()), strict=False)
        capped = [(number, cap) for number, cap in used if cap is not None]
        greatest = max(capped, key=lambda each: each[0] / (each[1] or 1), default=None)
        found[row.user_id] = share(*greatest) if greatest else "no cap"
    return found
