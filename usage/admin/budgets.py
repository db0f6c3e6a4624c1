"""The action that sets a client's monthly budget, on the client's page."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from django import forms
from django.http import HttpRequest

from accounts.models import Client
from config.console.actions import Action, ReasonForm, Result
from config.platform.money import DOLLAR, decimal
from usage.models import Budget
from usage.spending.budgets import MOST, set_budget


class BudgetForm(ReasonForm):
    monthly = forms.DecimalField(
        label="Dollars per month",
        required=False,
        min_value=Decimal("0.01"),
        max_value=decimal(MOST),
        decimal_places=2,
        help_text="Empty: no budget.",
    )


class SetBudget(Action):
    name = "budget"
    label = "Set budget"
    question = "Set the monthly budget of {name}?"
    form_class = BudgetForm

    def effects(self, target: Client) -> Iterable[str]:
        yield "Operators are emailed when 80 % of it is spent in a calendar month (UTC), and when all of it is."
        yield "Within a minute of that, the client's model calls are refused (budget_exceeded) until the next month."
        yield "Only calls to models with prices count. Raising the budget allows calls again at once."

    def initial(self, target: Client, *, by: HttpRequest) -> dict[str, Any]:
        budget = Budget.objects.filter(client=target).first()
        return {"monthly": f"{decimal(budget.monthly):.2f}"} if budget else {}

    def do(self, target: Client, *, monthly: Decimal | None, **inputs: Any) -> Result:
        amount = None if monthly is None else int(monthly * DOLLAR)
        budget = set_budget(client_id=target.pk, monthly=amount, **inputs)
        says = f"The budget of {target} is {budget}." if budget else f"{target} has no budget."
        return Result(says, target)
