"""The page of refusals."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Max, Q, Sum
from django.db.models.functions import TruncDate
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from accounts.admin.large_lists import THEIRS, LargeList
from accounts.models import Client
from config.console.base import uuid_in
from config.console.charts import Bar, Chart, Strip, days_axis
from config.console.lists.columns import ChoiceFilter, exact, moment, tokens
from config.console.navigation import page_of
from config.console.tables import Column, Link, Row, Table
from config.console.template_tags import cell
from config.platform.problems.problem import known_problems, titles
from usage.models import Refusal
from usage.refusal_log import KEPT

# Of one person or client, whose refusals are few.
LINKED = ("user__id__exact", "client_id__exact")
# The members of a refusal's numbers that say why, and not only what else was left.
CAUSES = frozenset({"cap", "requested", "limit"})


class CodeFilter(ChoiceFilter):
    title, parameter_name = "reason", "code"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The reasons that occur in what the other filters leave."""
        given = {name: request.GET[name] for name in LINKED if uuid_in(request.GET.get(name))}
        theirs = Refusal.objects.filter(**given).order_by().values_list("code", flat=True)
        found = theirs.distinct() if given else Refusal.objects.codes()
        codes = {*found, self.value() or ""} - {""}
        return sorted(((code, titles().get(code, code)) for code in codes), key=itemgetter(1))


class TimeFilter(admin.DateFieldListFilter):
    def __init__(self, *given: Any, **path: Any) -> None:
        super().__init__(*given, **path)
        self.title = "time"


@admin.register(Refusal)
class RefusalAdmin(LargeList):
    list_display = (
        exact("last_at", "time"),
        "who",
        "client",
        "reason",
        "left",
        "model",
        tokens("number", "count"),
    )
    change_form_template = "admin/console/refusal.html"
    list_filter = (CodeFilter, ("minute", TimeFilter))
    link_lookups = LINKED
    list_select_related = ("user",)
    search_help_text = f"{THEIRS}, or a request id, or the id of a person or client."
    uuid_fields = ("user_id", "client_id")
    fields = (moment("minute"), *list_display, "status", "code", "route")
    readonly_fields = ("who", "client", "left", "reason")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """With the names of the clients on the page, in one query."""
        found = super().get_changelist_instance(request)
        names = Client.objects.in_bulk({row.client_id for row in found.result_list} - {None})
        for row in found.result_list:
            row.of_client = names.get(row.client_id)
        return found

    def page_context(self, request: HttpRequest, row: Refusal) -> dict[str, Any]:
        calls = reverse("admin:usage_usagerecord_changelist")
        query = urlencode({"user__id__exact": str(row.user_id)})
        may_list = row.user_id and request.user.has_perm("usage.view_usagerecord")
        return {"shown": shown_for(row), "calls": f"{calls}?{query}" if may_list else ""}

    @admin.display(description="person")
    def who(self, row: Refusal) -> str:
        if row.user is None:
            return f"unknown, from {row.address or 'many networks'}"
        return cell(Link(str(row.user), page_of(row.user)))

    @admin.display(description="client")
    def client(self, row: Any) -> str | None:
        """The client at the time."""
        known = hasattr(row, "of_client")
        client = row.of_client if known else Client.objects.filter(pk=row.client_id).first()
        return cell(Link(str(client), page_of(client))) if client else None

    @admin.display(description="details")
    def left(self, row: Refusal) -> str:
        """The tokens that a request needed and that were left; for other reasons the sentence that the person read."""
        said = said_of(row.numbers) if row.numbers.keys() & CAUSES else ""
        return said or shown_for(row)

    def named(self, term: str) -> Q:
        return Q(request_ids__contains=[term])

    def uuid_query(self, identity: UUID) -> Q:
        return super().uuid_query(identity) | self.named(str(identity))


def shown_for(row: Refusal) -> str:
    """The sentence that the person read: the noted one, or the one of the code."""
    problem = known_problems().get(row.code)
    return str(row.numbers.get("detail") or (problem.default_detail if problem else ""))


def said_of(numbers: Mapping[str, Any]) -> str:
    """Returns in sentences what a refused request needed, and what was left of which cap."""
    # As the problem and its headers had them: numbers, or their digits.
    known = {name: int(value) for name, value in numbers.items() if str(value).isdigit()}
    of = f" {numbers['dimension']}" if "dimension" in numbers else ""
    said = []
    if "requested" in known:
        said.append(f"Needed {known['requested']:,}{of} tokens")
    cap, used, reserved = known.get("cap"), known.get("used"), known.get("reserved", 0)
    remaining = known.get("remaining")
    if remaining is not None and cap is not None:
        said.append(f"{remaining:,} of {cap:,} were left")
    elif used is not None and cap is not None:
        said.append(f"{used:,} of {cap:,}{of} tokens were used")
    if reserved:
        said.append(f"running calls held {reserved:,}")
    if "limit" in numbers:
        said.append(f"the rate limit {numbers['limit']} was reached")
    for name, period in (("remaining_month", "of the month"), ("remaining_day", "of the day")):
        if cap is None and name in known:
            said.append(f"{known[name]:,} tokens {period} were left")
    sentence = "; ".join(said)
    return f"{sentence[:1].upper()}{sentence[1:]}." if said else ""


def in_two_weeks(*, now: datetime, lookup: str, value: UUID) -> dict[str, Any]:
    """The refusals of one person (``user__id__exact``) or client, by reason and by day, for their page."""
    rows = Refusal.objects.filter(minute__gte=now - KEPT, **{lookup: value}).order_by()
    sums = rows.values_list("code").annotate(n=Sum("number"), last=Max("last_at"))
    reasons = sorted(sums, key=itemgetter(1), reverse=True)
    by_day = dict(rows.values_list(TruncDate("minute", tzinfo=UTC)).annotate(Sum("number")))
    today = now.astimezone(UTC).date()
    days = [today - timedelta(days=each) for each in reversed(range(KEPT.days))]
    page = reverse("admin:usage_refusal_changelist") + f"?{urlencode({lookup: str(value)})}"
    bars = [
        Bar(
            f"{day:%-d %b}",
            by_day.get(day, 0),
            href=f"{page}&minute__gte={day}T00:00Z&minute__lt={day + timedelta(days=1)}T00:00Z",
            title=f"{day:%-d %b}: {by_day.get(day, 0)} refusals",
            kind="errors",
        )
        for day in days
    ]
    table = Table(
        columns=[Column("Reason"), Column("Count", "number"), Column("Last", "time")],
        rows=[
            Row([titles().get(code, code), *others], href=f"{page}&code={code}")
            for code, *others in reasons
        ],
        empty="None in 14 days.",
        more=Link("All refusals", page) if reasons else None,
    )
    axis = days_axis(days, today=today)
    strip = Strip(bars, "calls", height=40)
    chart = Chart("Refusals by day", [strip], axis) if reasons else None
    return {"refusals": table, "refusals_by_day": chart}
