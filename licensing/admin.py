"""Plans and licences. A licence is only ever changed by its rules, on either of its axes."""

from collections.abc import Iterable, Mapping
from copy import copy
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.postgres.forms import SimpleArrayField
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from accounts.audit import Actor
from config.console.actions import Action, ReasonForm, Result, TrackedForm, UtcDateTimeField
from config.console.base import ConsoleAdmin
from config.console.columns import ChoiceFilter, moment, tokens
from config.console.template_tags import standing
from licensing import suspension_guard
from licensing.licences import set_customer, set_operator_status, set_terms
from licensing.models import Brake, Licence, Plan, Standing
from licensing.plans import PlanTerms, add_plan, change_plan

BILLING = "billing"
# What the form proposes for a grace; any other end can be written.
USUAL_GRACE = timedelta(days=14)
CLIENTS_NAMED = 20
ENTITLEMENTS_HELP = "Slugs of micro apps, separated by commas: small letters and digits, with single hyphens between."


class StatusForm(ReasonForm):
    status = forms.ChoiceField(
        widget=forms.RadioSelect,
        choices=(
            (Standing.ACTIVE, "Active: everything works."),
            (Standing.GRACE, "Grace: everything works, and shells warn until it ends."),
            (Standing.SUSPENDED, "Suspended: shells lock and model calls are refused."),
            (BILLING, "Whatever billing says: take back the operator's word."),
        ),
    )
    grace_until = UtcDateTimeField(
        label="Grace ends (UTC)", required=False, help_text="For a grace; people see this instant."
    )
    ends_at = UtcDateTimeField(
        label="Until (UTC)",
        required=False,
        help_text="From then on what billing says counts again. Empty: until an operator says otherwise.",
    )


class SetStatus(Action):
    """The operator's word on a licence."""

    name = "status"
    label = "Change status"
    form_class = StatusForm

    def effects(self, target: Licence) -> Iterable[str]:
        yield f"Now: {target.status}. Billing says: {target.billing_status}."
        yield "Shells see a change at their next look, within a minute."
        yield "Suspending ends running model calls within 15 seconds; signing in and looking up usage still work."
        yield "Billing never undoes an operator's word; at its end it is taken back within the hour."

    def initial(self, target: Licence, *, by: HttpRequest) -> dict[str, Any]:
        return {
            "status": target.operator_status or BILLING,
            "grace_until": target.operator_grace_until,
            "ends_at": target.operator_until,
        }

    def do(
        self,
        target: Licence,
        *,
        status: Any,
        grace_until: Any,
        ends_at: Any,
        reason: str,
        by: Actor,
        now: datetime,
    ) -> Result:
        word = status
        licence = set_operator_status(
            licence_id=target.pk,
            status=None if word == BILLING else Standing(word),
            grace_until=grace_until if word == Standing.GRACE else None,
            ends_at=ends_at if word != BILLING else None,
            reason=reason,
            by=by,
            now=now,
        )
        return Result(f"The licence of {licence.client} is {licence.status} now.", licence.client)


class TermsForm(TrackedForm, ReasonForm):
    plan = forms.ModelChoiceField(Plan.objects.all(), empty_label=None)
    entitlements = SimpleArrayField(
        forms.SlugField(max_length=60),
        label="Beyond the plan",
        required=False,
        help_text=f"What this client may use besides what the plan gives. {ENTITLEMENTS_HELP}",
    )


class SetTerms(Action):
    """Another plan, or other entitlements beside it."""

    name = "terms"
    label = "Change plan or entitlements"
    form_class = TermsForm

    def effects(self, target: Licence) -> Iterable[str]:
        yield f"{target.client} has the plan {target.plan} now."
        yield "Caps and entitlements of the new plan count from the next request on; what was used stays used."

    def initial(self, target: Licence, *, by: HttpRequest) -> dict[str, Any]:
        return {"plan": target.plan_id, "entitlements": target.entitlements}

    def do(
        self,
        target: Licence,
        *,
        plan: Plan,
        entitlements: Any,
        shown: Any,
        reason: str,
        by: Actor,
        now: datetime,
    ) -> Result:
        licence = set_terms(
            licence_id=target.pk,
            plan=plan,
            entitlements=entitlements or [],
            shown=shown,
            reason=reason,
            by=by,
            now=now,
        )
        return Result(f"{licence.client} has the plan {licence.plan}.", licence.client)


class CustomerForm(ReasonForm):
    stripe_customer_id = forms.RegexField(
        r"^cus_\w+$",
        label="Stripe customer",
        required=False,
        strip=True,
        max_length=255,
        help_text="As in cus_Nf1…; empty where nobody pays by Stripe.",
    )


class SetCustomer(Action):
    """Who pays for a licence."""

    name = "customer"
    label = "Change who pays"
    form_class = CustomerForm

    def effects(self, target: Licence) -> Iterable[str]:
        yield "From the next night on, this customer's subscription decides what billing says of the licence."
        yield f"Billing says now: {target.billing_status}. Without a customer that stays as it is."

    def initial(self, target: Licence, *, by: HttpRequest) -> dict[str, Any]:
        return {"stripe_customer_id": target.stripe_customer_id}

    def do(
        self, target: Licence, *, stripe_customer_id: Any, reason: str, by: Actor, now: datetime
    ) -> Result:
        licence = set_customer(
            licence_id=target.pk,
            customer_id=stripe_customer_id,
            reason=reason,
            by=by,
            now=now,
        )
        payer = licence.stripe_customer_id or "Nobody"
        return Result(f"{payer} pays for {licence.client}.", licence.client)


class StatusFilter(ChoiceFilter):
    title, parameter_name = "status", "status"
    choices_of = tuple(Standing.choices)

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(status=value)


class WordFilter(ChoiceFilter):
    title, parameter_name = "whose word counts", "word"
    choices_of = (("operator", "an operator's"), ("billing", "billing's"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(operator_status__isnull=value == "billing")


@admin.register(Licence)
class LicenceAdmin(ConsoleAdmin):
    row_actions = (SetStatus(), SetTerms(), SetCustomer())
    list_display = (
        "client",
        "plan",
        "shown_status",
        moment("grace_until"),
        "billing_status",
        "operator_status",
        moment("operator_until", "operator's word ends"),
        moment("changed_at"),
    )
    list_filter = (StatusFilter, WordFilter, "plan")
    list_select_related = ("client", "plan")
    search_fields = ("client__name", "operator_reason", "stripe_customer_id")
    uuid_fields = ("client_id",)
    fields = (
        "client",
        "plan",
        "shown_entitlements",
        "shown_status",
        moment("grace_until"),
        "billing_status",
        moment("billing_grace_until"),
        "operator_status",
        moment("operator_grace_until"),
        moment("operator_until", "operator's word ends"),
        "operator_reason",
        "stripe_customer_id",
        moment("changed_at"),
    )
    readonly_fields = ("shown_entitlements", "shown_status")

    def audit_target(self, row: Licence) -> object:
        return row.client_id

    @admin.display(description="status", ordering="status")
    def shown_status(self, licence: Licence) -> str:
        return standing(licence.status)

    @admin.display(description="entitlements")
    def shown_entitlements(self, licence: Licence) -> str:
        return ", ".join(licence.all_entitlements) or "–"


class ConfirmBrake(Action):
    """Leave for a run to suspend as many as it would."""

    name = "confirm"
    label = "Confirm the suspensions"
    form_class = ReasonForm
    destructive = True

    def available(self, target: Brake, *, by: HttpRequest) -> bool:
        return target.is_held

    def effects(self, target: Brake) -> Iterable[str]:
        yield f"The next run of {target.job} suspends {len(target.licence_ids)} of {target.clients} clients."
        yield f"Among them: {', '.join(_clients_of(target)[:CLIENTS_NAMED])}."
        yield "Their shells lock within a minute of it, and their model calls are refused."
        yield (
            "A run that would suspend more others than it may by itself asks again; "
            "so does one more than three days from now."
        )

    def do(self, target: Brake, *, reason: str, by: Actor, now: datetime) -> Result:
        suspension_guard.confirm(brake_id=target.pk, reason=reason, by=by, now=now)
        return Result("Confirmed. The next run does it; to do it now, run the command.", target)


def _clients_of(held: Brake) -> list[str]:
    names = Licence.objects.filter(pk__in=held.licence_ids).order_by("client__name")
    return list(names.values_list("client__name", flat=True))


@admin.register(Brake)
class BrakeAdmin(ConsoleAdmin):
    row_actions = (ConfirmBrake(),)
    list_display = (
        "job",
        moment("noticed_at"),
        "suspensions",
        "clients",
        moment("confirmed_at"),
        "confirmed_by",
        moment("ended_at"),
    )
    fields = (*list_display, "named")
    readonly_fields = ("suspensions", "named")

    @admin.display(description="would be suspended")
    def suspensions(self, held: Brake) -> int:
        return len(held.licence_ids)

    @admin.display(description="who")
    def named(self, held: Brake) -> str:
        return ", ".join(_clients_of(held))


class PlanForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Plan
        fields = (
            "name",
            "entitlements",
            "monthly_input_tokens",
            "monthly_output_tokens",
            "daily_tokens",
        )
        help_texts = {"entitlements": ENTITLEMENTS_HELP}


class ChangedPlanForm(TrackedForm, PlanForm):
    reason = ReasonForm.base_fields["reason"]


class ChangePlan(Action):
    name = "terms"
    label = "Change plan"
    form_class = ChangedPlanForm

    def effects(self, target: Plan) -> Iterable[str]:
        number = Licence.objects.filter(plan=target).count()
        yield f"Licences on this plan: {number}. The new terms count for all of them from the next request on."

    def form(self, target: Plan, data: Mapping[str, Any] | None, *, by: HttpRequest) -> PlanForm:
        return ChangedPlanForm(data, instance=copy(target))

    def do(self, target: Plan, *, by: Actor, now: datetime, **given: Any) -> Result:
        plan = change_plan(
            plan_id=target.pk,
            terms=_terms(given),
            shown=given["shown"],
            reason=given["reason"],
            by=by,
            now=now,
        )
        return Result(f"{plan} has been changed.", plan)


class AddPlan(Action):
    name = "add"
    label = "Add plan"
    permission = "add"
    form_class = PlanForm

    def form(self, target: None, data: Mapping[str, Any] | None, *, by: HttpRequest) -> PlanForm:
        return PlanForm(data)

    def do(self, target: None, *, by: Actor, now: datetime, **given: Any) -> Result:
        plan = add_plan(terms=_terms(given), by=by, now=now)
        return Result(f"{plan} has been added.", plan)


def _terms(given: dict[str, Any]) -> PlanTerms:
    return PlanTerms(
        name=given["name"],
        entitlements=given["entitlements"] or [],
        monthly_input_tokens=given["monthly_input_tokens"],
        monthly_output_tokens=given["monthly_output_tokens"],
        daily_tokens=given["daily_tokens"],
    )


@admin.register(Plan)
class PlanAdmin(ConsoleAdmin):
    row_actions = (ChangePlan(),)
    add_action = AddPlan()
    list_display = (
        "name",
        "shown_entitlements",
        tokens("monthly_input_tokens"),
        tokens("monthly_output_tokens"),
        tokens("daily_tokens"),
        "licences_held",
    )
    search_fields = ("name",)
    fields = list_display
    readonly_fields = ("shown_entitlements", "licences_held")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).annotate(licence_count=Count("licences"))

    @admin.display(description="entitlements")
    def shown_entitlements(self, plan: Plan) -> str:
        return ", ".join(plan.entitlements) or "–"

    @admin.display(description="licences", ordering="licence_count")
    def licences_held(self, plan: Any) -> int:
        return int(plan.licence_count)
