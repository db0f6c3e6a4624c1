"""The lists of budgets and of stops of model calls."""

from collections.abc import Iterable
from typing import Any, cast

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from accounts.models import Client
from config.console.actions import Action, Result
from config.console.base import ConsoleAdmin
from config.console.lists.columns import act, moment, person, right
from config.console.navigation import page_of
from config.console.tables import Link
from config.console.template_tags import cell, dollars, share
from config.platform.periods import Period
from usage.admin.budgets import BudgetForm, SetBudget
from usage.models import Budget, Stop
from usage.spending.sums import FOUR_WEEKS, Scope, forecast


class AnyBudgetForm(BudgetForm):
    client = forms.ModelChoiceField(Client.objects.order_by("name"))
    field_order = ("client", "monthly")


class AddBudget(Action):
    """For a client that has none yet; the rule and its consequences are those of the client's page."""

    name = "add"
    label = "Set a client's budget"
    form_class = AnyBudgetForm

    def effects(self, target: None) -> Iterable[str]:
        return SetBudget().effects(cast("Any", None))

    def do(self, target: None, *, client: Client, **inputs: Any) -> Result:
        return SetBudget().do(client, **inputs)._replace(then=None)


@admin.register(Budget)
class BudgetAdmin(ConsoleAdmin):
    add_action = AddBudget()
    list_display = ("client_page", "spent_now", "budget", "part", "forecast", "state")
    list_display_links = None
    list_select_related = ("client",)
    ordering = ("client__name",)
    search_fields = ("client__name",)
    uuid_fields = ("client_id",)
    audit_target = "client_id"
    fields = ("client", "budget", "spent_now", "state", moment("summed_at"))
    readonly_fields = ("budget", "spent_now", "state")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """With what each client on the page is still expected to spend, in one query."""
        found = super().get_changelist_instance(request)
        period = Period.of(timezone.now())
        clients = [row.client_id for row in found.result_list]
        costs = Scope().costs_of("client", clients, period.day - FOUR_WEEKS, period.day)
        for row in found.result_list:
            row.ahead = sum(forecast(costs[row.client_id], period).values())
        return found

    def get_list_display(self, request: HttpRequest) -> Any:
        set_it = act(request, "budget", "Set", "Set the budget of {.client}", on="client")
        return (*self.list_display, set_it)

    @admin.display(description="client", ordering="client__name")
    def client_page(self, row: Budget) -> str:
        return cell(Link(str(row.client), page_of(row.client)))

    @admin.display(description="spent this month", ordering="spent")
    def spent_now(self, row: Budget) -> str:
        return right(dollars(_spent(row)))

    @admin.display(description="budget", ordering="monthly")
    def budget(self, row: Budget) -> str:
        return right(dollars(row.monthly))

    @admin.display(description="share")
    def part(self, row: Budget) -> str:
        return share(_spent(row), row.monthly)

    @admin.display(description="forecast")
    def forecast(self, row: Any) -> str:
        return right(dollars(_spent(row) + row.ahead))

    @admin.display(description="state")
    def state(self, row: Budget) -> str:
        if row.exceeded_at:
            return "spent: model calls are refused"
        return "operators were emailed at 80 %" if row.warned_at else ""

    def row_name(self, row: Budget) -> str:
        return f"Budget of {row.client}"


def _spent(row: Budget) -> int:
    """Returns this month's spending, which the worker sums every minute."""
    return row.spent if row.period == Period.of(timezone.now()).month else 0


@admin.register(Stop)
class StopAdmin(ConsoleAdmin):
    list_display = (person(), moment("stopped_at", "since"), moment("ends_at", "until"), "reason")
    list_display_links = None
    list_select_related = ("user",)
    search_fields = ("user__email", "reason")
    uuid_fields = ("user_id",)
    fields = list_display

    def get_queryset(self, request: HttpRequest) -> QuerySet[Stop]:
        return Stop.objects.in_force(at=timezone.now())

    def get_list_display(self, request: HttpRequest) -> Any:
        said = "Restart model calls of {.user}"
        return (*self.list_display, act(request, "restart_calls", "Restart", said, on="user"))

    def row_name(self, row: Stop) -> str:
        return f"Stop of {cast('Any', row).user}"
