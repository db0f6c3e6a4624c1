"""The page of plans, and the actions that add and change them."""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import fields as dataclass_fields
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count
from django.http import HttpRequest

from accounts.audit import Actor
from accounts.hooks import extensions
from config.console.actions import Action, ReasonForm, Result, TrackedForm
from config.console.base import ConsoleAdmin
from config.console.lists.columns import tokens, yes_no
from licensing.models import Licence, Plan
from licensing.plans import PlanTerms, add_plan, change_plan

ENTITLEMENTS_HELP = (
    "Slugs of micro apps, separated by commas: lower-case letters and digits, with single hyphens between "
    "them."
)


class AppsForm(forms.BaseForm):
    """A form that asks once more about entitlements that name no app, which is often a slip."""

    def clean(self) -> dict[str, Any] | None:
        given = super().clean()
        slugs = {*(self.cleaned_data.get("entitlements") or [])}
        slugs -= {*(self.initial.get("entitlements") or [])}
        if unknown := sorted(slugs & extensions().unknown_apps(slugs)):
            names = ", ".join(unknown)
            said = f"No app is called {names}. Submit again if it is not published yet."
            self.ask_once_more("unknown", " ".join(unknown), at="entitlements", said=said)
        return given

    def ask_once_more(self, hidden: str, value: str, *, at: str, said: str) -> None:
        """Refuses the form at a field, unless its hidden field shows that it was displayed with this value before."""
        self.fields[hidden] = forms.CharField(widget=forms.HiddenInput, initial=value)
        if self.data.get(hidden) != value:
            data: Any = copy(self.data)
            data[hidden] = value
            self.data = data
            self.add_error(at, said)


class PlanForm(AppsForm, forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Plan
        fields = tuple(each.name for each in dataclass_fields(PlanTerms))
        help_texts = {"entitlements": ENTITLEMENTS_HELP}


class ChangedPlanForm(TrackedForm, PlanForm):
    reason = ReasonForm.base_fields["reason"]


class ChangePlan(Action):
    name = "terms"
    label = "Change plan"
    question = "Change the plan {name}?"
    form_class = ChangedPlanForm

    def effects(self, target: Plan) -> Iterable[str]:
        number = Licence.objects.filter(plan=target).count()
        yield f"Licences on this plan: {number}. The new terms apply to all of them from the next request on."

    def form(self, target: Plan, data: Mapping[str, Any] | None, *, by: HttpRequest) -> PlanForm:
        return ChangedPlanForm(data, instance=copy(target))

    def do(
        self, target: Plan, *, reason: str, shown: Any, by: Actor, now: datetime, **terms: Any
    ) -> Result:
        plan = change_plan(
            plan_id=target.pk, terms=_terms(terms), shown=shown, reason=reason, by=by, now=now
        )
        pairs = ((each, getattr(target, each), getattr(plan, each)) for each in terms)
        changed = [
            f"{each}: {in_words(was)} → {in_words(now)}" for each, was, now in pairs if was != now
        ]
        told = "; ".join(changed).replace("_", " ")
        follows = f"{told[:1].upper()}{told[1:]}." if told else "Nothing has changed."
        return Result(f"{plan} has been changed for its licences.", plan, follows)


class AddPlan(Action):
    name = "add"
    label = "Add plan"
    form_class = PlanForm

    def form(self, target: None, data: Mapping[str, Any] | None, *, by: HttpRequest) -> PlanForm:
        return PlanForm(data)

    def do(self, target: None, *, by: Actor, now: datetime, **terms: Any) -> Result:
        plan = add_plan(terms=_terms(terms), by=by, now=now)
        return Result(f"{plan} has been added.", plan)


def in_words(value: Any) -> str:
    """A term as an operator reads it."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(value) or "nothing"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _terms(terms: dict[str, Any]) -> PlanTerms:
    return PlanTerms(**{**terms, "entitlements": terms["entitlements"] or []})


# The columns of terms that are not shown as they are stored.
COLUMNS: dict[str, Any] = {
    "entitlements": "entitlement_names",
    "monthly_input_tokens": tokens("monthly_input_tokens"),
    "monthly_output_tokens": tokens("monthly_output_tokens"),
    "daily_tokens": tokens("daily_tokens"),
    "allows_keys": yes_no("allows_keys", "personal keys"),
    "is_default": yes_no("is_default", "for new clients"),
}
TERMS = [COLUMNS.get(each.name, each.name) for each in dataclass_fields(PlanTerms)]
CAPS_END = TERMS.index(COLUMNS["daily_tokens"]) + 1


@admin.register(Plan)
class PlanAdmin(ConsoleAdmin):
    row_actions = (ChangePlan(),)
    add_action = AddPlan()
    list_display = (*TERMS[:CAPS_END], "licence_number", *TERMS[CAPS_END:])
    search_fields = ("name",)
    fields = list_display
    readonly_fields = ("entitlement_names", "licence_number")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).annotate(licence_count=Count("licences"))

    @admin.display(description="entitlements")
    def entitlement_names(self, plan: Plan) -> str:
        return ", ".join(plan.entitlements) or "–"

    @admin.display(description="licences", ordering="licence_count")
    def licence_number(self, plan: Any) -> int:
        return int(plan.licence_count)
