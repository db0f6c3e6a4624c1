"""The list of clients for daily work: licence, people, spending, last call and open problems, sortable and exported."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    DateField,
    F,
    FloatField,
    IntegerField,
    OuterRef,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.utils import timezone

from accounts.admin.exports import ExportedList
from accounts.audit import record
from accounts.models import Client, User
from config.composition.attention.listing import problems_by_client
from config.console.lists.columns import ChoiceFilter, right
from config.console.lists.ordering import EmptyLast
from config.console.template_tags import dollars, grouped, share, standing
from config.platform.exports import lines, pages
from config.platform.money import decimal
from config.platform.periods import Period
from config.platform.problems.problem import instant
from licensing.admin.licences import StatusFilter
from usage.spending.columns import callers_of_client, last_day_of_client, spent_by_client

EXPORTED = (
    "id", "client", "licence", "plan", "people", "callers_this_month", "spent_usd", "budget_usd", "budget_percent",
    "last_call_day", "open_problems", "contract", "account_manager", "alert_email", "created_at", "seats",
    "seats_taken",
)  # fmt: skip
# Of a list, whose columns are about a client's money.
OF_USAGE = frozenset({"callers", "spent", "budget_share", "last_call"})


def with_standing(
    clients: QuerySet[Any], *, problems: Mapping[UUID, int], now: datetime
) -> QuerySet[Any]:
    """The clients with counts of people, taken seats, callers and problems, their cost, and their last day."""
    theirs = User.objects.filter(client=OuterRef("pk"), erased_at=None).order_by()
    number = theirs.values("client").annotate(number=Count("pk")).values("number")
    enabled = theirs.filter(is_active=True).values("client").annotate(n=Count("pk")).values("n")
    by_number: dict[int, list[UUID]] = defaultdict(list)
    for client, open_ones in problems.items():
        by_number[open_ones].append(client)
    found_open = [When(pk__in=ids, then=Value(each)) for each, ids in by_number.items()]
    found: QuerySet[Any] = clients.select_related("budget", "licence__plan").annotate(
        people_count=Coalesce(Subquery(number), 0, output_field=BigIntegerField()),
        seats_used=Coalesce(Subquery(enabled), 0, output_field=BigIntegerField()),
        caller_count=callers_of_client(now=now),
        cost=spent_by_client(now=now),
        last_day=last_day_of_client(),
        problem_count=Case(*found_open, default=Value(0), output_field=IntegerField()),
    )
    return found


class LicenceStatusFilter(StatusFilter):
    title, parameter_name, lookup = "licence", "status", "licence__status"


class BudgetFilter(ChoiceFilter):
    title, parameter_name = "budget", "budget"
    choices_of = (("near", "80 % or more"), ("over", "spent"), ("none", "no budget"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "none":
            return rows.filter(budget=None)
        alert_field = "budget__warned_at" if value == "near" else "budget__exceeded_at"
        month = Period.of(timezone.now()).month
        return rows.filter(**{"budget__period": month, f"{alert_field}__isnull": False})


class ProblemFilter(ChoiceFilter):
    title, parameter_name = "problems", "problems"
    choices_of = (("open", "open"), ("none", "none"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(problem_count=0) if value == "none" else rows.exclude(problem_count=0)


class ClientList(ExportedList):
    """The columns, filters and export of the list of clients."""

    # Repeated for mypy, which takes that of the first base class.
    fields: ClassVar[Any] = None
    export_name = "clients"
    list_display = (
        "name", "status", "plan", "people", "callers", "spent", "budget_share", "last_call", "problems",
    )  # fmt: skip
    list_filter = (LicenceStatusFilter, ProblemFilter, BudgetFilter, "licence__plan")
    search_fields = ("name", "contract", "manager", "notes")
    search_help_text = "Part of the name, contract, account manager or notes."

    def listed(self, request: HttpRequest, rows: QuerySet[Client]) -> QuerySet[Client]:
        now = timezone.now()
        problems = problems_by_client(now=now, operator=request.user)
        return with_standing(rows, problems=problems, now=now)

    def get_list_display(self, request: HttpRequest) -> Any:
        hidden = set() if request.user.has_perm("usage.view_monthlyusage") else OF_USAGE
        return [each for each in self.list_display if each not in hidden]

    @admin.display(description="licence", ordering="licence__status")
    def status(self, client: Any) -> str:
        licence = getattr(client, "licence", None)
        return standing(licence.status) if licence else "none"

    @admin.display(description="plan", ordering="licence__plan__name")
    def plan(self, client: Any) -> str:
        licence = getattr(client, "licence", None)
        return str(licence.plan) if licence else "none"

    @admin.display(description="people", ordering="people_count")
    def people(self, client: Any) -> str:
        """The number of people; where the licence has seats, how many of them are taken."""
        licence = getattr(client, "licence", None)
        if licence is None or licence.seats is None:
            return right(grouped(client.people_count))
        return right(f"{client.seats_used:,} of {licence.seats:,}")

    @admin.display(description="active this month", ordering="caller_count")
    def callers(self, client: Any) -> str:
        return right(grouped(client.caller_count))

    @admin.display(description="spent this month", ordering="cost")
    def spent(self, client: Any) -> str:
        return right(dollars(client.cost))

    @admin.display(
        description="of budget",
        ordering=EmptyLast(
            Case(When(budget__isnull=False, then=F("cost") * 1.0 / F("budget__monthly"))),
            FloatField(),
        ),
    )
    def budget_share(self, client: Any) -> str:
        budget = getattr(client, "budget", None)
        return share(client.cost, budget.monthly) if budget else ""

    @admin.display(description="last call", ordering=EmptyLast(F("last_day"), DateField()))
    def last_call(self, client: Any) -> str:
        return right(day_in_words(client.last_day, today=Period.of(timezone.now()).day))

    @admin.display(description="problems", ordering="problem_count")
    def problems(self, client: Any) -> str:
        return right(grouped(client.problem_count)) if client.problem_count else ""

    def export(self, rows: QuerySet[Client], *, ending: str) -> Iterator[bytes]:
        found = (map(_as_exported, each) for each in pages(rows, time="created_at"))
        return lines(EXPORTED, found, ending=ending)

    def note_export(self, **inputs: Any) -> None:
        record("client:exported", **inputs)


def day_in_words(day: date | None, *, today: date) -> str:
    """A day (UTC) as lists have it: "today", otherwise 23 Nov, with the year when it is another; "" without one."""
    if day is None:
        return ""
    return "today" if day == today else f"{day:%-d %b}{f' {day.year}' * (day.year != today.year)}"


def _as_exported(client: Any) -> dict[str, Any]:
    licence, budget = getattr(client, "licence", None), getattr(client, "budget", None)
    return {
        "id": str(client.pk),
        "client": client.name,
        "licence": licence.status if licence else None,
        "plan": str(licence.plan) if licence else None,
        "people": client.people_count,
        "callers_this_month": client.caller_count,
        "spent_usd": str(decimal(client.cost)),
        "budget_usd": str(decimal(budget.monthly)) if budget else None,
        "budget_percent": 100 * client.cost // budget.monthly if budget else None,
        "last_call_day": str(client.last_day) if client.last_day else None,
        "open_problems": client.problem_count,
        "contract": client.contract,
        "account_manager": client.manager,
        "alert_email": client.alert_email,
        "created_at": instant(client.created_at),
        "seats": licence.seats if licence else None,
        "seats_taken": client.seats_used,
    }
