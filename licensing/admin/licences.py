"""The page of licences, and the actions that change their terms and customer."""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from accounts.seats import seats_of, seats_used
from accounts.sessions.devices import DevicesOfClient, devices_of_client
from config.console.actions import Action, ReasonForm, Result, TrackedForm
from config.console.base import ConsoleAdmin
from config.console.lists.columns import ChoiceFilter, moment
from config.console.template_tags import counted, standing
from licensing.admin.plans import ENTITLEMENTS_HELP, AppsForm, in_words
from licensing.admin.status import Resume, SetStatus, Suspend
from licensing.licences import LicenceTerms, set_customer, set_terms, terms_of
from licensing.models import DevicesFull, Licence, Plan, Standing


class TermsForm(TrackedForm, AppsForm, forms.ModelForm):  # type: ignore[type-arg]
    plan = forms.ModelChoiceField(Plan.objects.all(), label="Plan", empty_label=None)
    # Absent from a page of the release before.
    devices_full = forms.ChoiceField(
        choices=DevicesFull, label="When all are in use", required=False, initial=DevicesFull.REFUSE
    )
    reason = ReasonForm.base_fields["reason"]

    class Meta:
        model = Licence
        fields = tuple(LicenceTerms.__annotations__)
        labels = {"entitlements": "Beyond the plan"}
        help_texts = {
            "entitlements": f"Entitlements in addition to those of the plan. {ENTITLEMENTS_HELP}"
        }

    def clean_devices_full(self) -> str:
        chosen: str = self.cleaned_data["devices_full"]
        return chosen or self.instance.devices_full

    def clean(self) -> dict[str, Any] | None:
        given = super().clean()
        limit = self.cleaned_data.get("devices")
        if limit is not None and limit != self.instance.devices:
            devices = devices_of_client(self.instance.client_id, at=timezone.now())
            if said := " ".join(_effects_of_limit(limit, devices)):
                said = f"{said} Submit again to set it."
                self.ask_once_more("limited", str(limit), at="devices", said=said)
        return given


class SetTerms(Action):
    """Sets the terms of a licence."""

    name = "terms"
    label = "Change licence terms"
    question = "Change the licence terms of {name}?"
    form_class = TermsForm

    def effects(self, target: Licence) -> Iterable[str]:
        terms = "; ".join(f"{what}: {value}" for what, value in _terms_in_words(target).items())
        yield f"Current terms of {target.client} – {terms}."
        yield "Caps and entitlements of the new plan apply from the next request on; tokens used so far still count."
        yield (
            f"{counted(seats_used(target.client_id), 'seat is', 'seats are')} taken. "
            "Lowering the number disables nobody, but nobody can be added or enabled until a seat is free."
        )
        yield (
            "A device limit applies from each person's next sign-in, and signs nobody out. "
            "A shell that sends no device fingerprint replaces another that sends none."
        )

    def form(
        self, target: Licence, data: Mapping[str, Any] | None, *, by: HttpRequest
    ) -> TermsForm:
        # A copy: the form writes what was entered into its instance.
        return TermsForm(data, instance=copy(target))

    def do(self, target: Licence, **inputs: Any) -> Result:
        licence = set_terms(licence_id=target.pk, **inputs)
        before = _terms_in_words(target)
        changed = [
            f"{what}: {before[what]} → {value}."
            for what, value in _terms_in_words(licence).items()
            if value != before[what]
        ]
        said = f"{licence.client} has the plan {licence.plan}."
        seats = seats_of(licence.client)
        if seats and seats.over:
            people = counted(seats.over, "more person", "more people")
            changed.append(f"{seats} seats are taken: {people} than seats. Nobody is disabled.")
        return Result(said, licence.client, " ".join(changed) or "Nothing has changed.")


class CustomerForm(ReasonForm):
    stripe_customer_id = forms.RegexField(
        r"^cus_\w+$",
        label="Stripe customer",
        required=False,
        strip=True,
        max_length=255,
        help_text="For example, cus_Nf1…; empty if the client does not pay through Stripe.",
    )


class SetCustomer(Action):
    """Sets the customer who pays for a licence."""

    name = "customer"
    label = "Link Stripe customer"
    question = "Link {name} to a Stripe customer?"
    form_class = CustomerForm

    def effects(self, target: Licence) -> Iterable[str]:
        yield "From the next nightly run on, this customer's subscription decides what billing says about the licence."
        yield f"Billing says now: {target.billing_status}. Without a customer it stays as it is."

    def initial(self, target: Licence, *, by: HttpRequest) -> dict[str, Any]:
        return {"stripe_customer_id": target.stripe_customer_id}

    def do(self, target: Licence, *, stripe_customer_id: str, **inputs: Any) -> Result:
        licence = set_customer(licence_id=target.pk, customer_id=stripe_customer_id, **inputs)
        payer = licence.stripe_customer_id or "No Stripe customer"
        return Result(f"{payer} is linked to {licence.client}.", licence.client)


def _terms_in_words(licence: Licence) -> dict[str, str]:
    """The terms of a licence by the labels of their fields."""
    fields = TermsForm.base_fields
    terms = {**terms_of(licence), "devices_full": DevicesFull(licence.devices_full).label}
    return {str(fields[name].label): in_words(value) for name, value in terms.items()}


def _effects_of_limit(limit: int, devices: DevicesOfClient) -> Iterator[str]:
    """The effects of a limit of devices on the people who are signed in, in sentences; none where it has none."""
    if over := devices.people_over(limit):
        number, stay = counted(over, "person is", "people are"), "stays" if over == 1 else "stay"
        yield f"{number} signed in on more than {counted(limit, 'device')}, and {stay} signed in."
    if devices.unnamed:
        yield f"{counted(devices.unnamed, 'shell sends', 'shells send')} no device fingerprint."


class StatusFilter(ChoiceFilter):
    title, parameter_name = "status", "status"
    choices_of = tuple(Standing.choices)


class DecisionFilter(ChoiceFilter):
    title, parameter_name = "decided by", "word"
    choices_of = (("operator", "an operator"), ("billing", "billing"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(operator_status__isnull=value == "billing")


@admin.register(Licence)
class LicenceAdmin(ConsoleAdmin):
    row_actions = (Resume(), SetStatus(), SetTerms(), SetCustomer(), Suspend())
    list_display = (
        "client",
        "plan",
        "status_label",
        moment("grace_until"),
        "billing_status",
        "operator_status",
        moment("operator_until", "operator's decision ends"),
        moment("changed_at", "changed"),
    )
    list_filter = (StatusFilter, DecisionFilter, "plan")
    list_select_related = ("client", "plan")
    search_fields = ("client__name", "operator_reason", "stripe_customer_id")
    uuid_fields = ("client_id",)
    audit_target = "client_id"
    fields = (
        "client",
        "plan",
        "seats_taken",
        "devices_allowed",
        "entitlement_names",
        "status_label",
        moment("grace_until"),
        "billing_status",
        moment("billing_grace_until"),
        "operator_status",
        moment("operator_grace_until"),
        moment("operator_until", "operator's decision ends"),
        "operator_reason",
        "stripe_customer_id",
        moment("changed_at"),
    )
    readonly_fields = ("seats_taken", "devices_allowed", "entitlement_names", "status_label")

    def row_name(self, row: Licence) -> str:
        return str(row.client)

    @admin.display(description="status", ordering="status")
    def status_label(self, licence: Licence) -> str:
        return standing(licence.status)

    @admin.display(description="seats")
    def seats_taken(self, licence: Licence) -> str:
        return str(seats_of(licence.client) or f"{seats_used(licence.client_id):,} taken")

    @admin.display(description="devices per person")
    def devices_allowed(self, licence: Licence) -> str:
        if licence.devices is None:
            return "any number"
        when_full = licence.get_devices_full_display().lower()
        return f"{licence.devices:,}; when all are in use: {when_full}"

    @admin.display(description="entitlements")
    def entitlement_names(self, licence: Licence) -> str:
        return ", ".join(licence.all_entitlements) or "–"
