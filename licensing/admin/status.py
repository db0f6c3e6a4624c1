"""The actions that change a licence's status: suspend it, resume it, or any other decision of an operator."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import HttpRequest

from accounts.models import User
from config.console.actions import Action, ReasonForm, Result, UtcDateTimeField
from config.console.template_tags import counted
from licensing.licences import set_operator_status
from licensing.models import Licence, Standing

BILLING = "billing"
FOR_GOOD, UNTIL = "for_good", "until"


class SuspendForm(ReasonForm):
    how_long = forms.ChoiceField(
        widget=forms.RadioSelect,
        initial=FOR_GOOD,
        choices=(
            (FOR_GOOD, "Until an operator changes it"),
            (UNTIL, "Until a date, then billing decides again"),
        ),
    )
    ends_at = UtcDateTimeField(label="Until (UTC)", required=False)

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if given.get("how_long") == UNTIL and not given.get("ends_at") and not self.errors:
            self.add_error("ends_at", "Enter the date on which billing decides again.")
        return given


class Suspend(Action):
    """Suspends a client, whatever billing says."""

    name = "suspend"
    label = "Suspend"
    question = "Suspend {name}?"
    form_class = SuspendForm
    destructive = True
    consequences = "admin/console/suspend.html"

    def available(self, target: Licence, *, by: HttpRequest) -> bool:
        return bool(target.status != Standing.SUSPENDED)

    def shown(self, target: Licence, form: Any) -> dict[str, Any]:
        people = User.objects.filter(client=target.client_id, erased_at=None, is_active=True)
        lose = counted(people.count(), "person loses", "people lose")
        return {
            "licence": target,
            "sentence": f"{lose} model calls and apps. Signing in still works.",
            "note": "Resume undoes it.",
        }

    def do(self, target: Licence, *, how_long: str, ends_at: Any, **inputs: Any) -> Result:
        until = ends_at if how_long == UNTIL else None
        licence = set_operator_status(
            licence_id=target.pk, status=Standing.SUSPENDED, ends_at=until, **inputs
        )
        return Result(status_sentence(licence), licence.client, undo=(licence, Resume.name))


class ResumeForm(ReasonForm):
    then = forms.ChoiceField(widget=forms.RadioSelect, label="From then on")

    def __init__(self, *args: Any, licence: Licence, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(Standing.ACTIVE, "Active until an operator changes it, whatever billing says")]
        if licence.billing_status != Standing.SUSPENDED:
            says = f"Billing decides again; it says {licence.billing_status} now"
            choices.insert(0, (BILLING, says))  # type: ignore[arg-type]
        field: Any = self.fields["then"]
        field.choices = choices
        field.initial = choices[0][0]


class Resume(Action):
    """Ends a suspension, whether an operator's or billing's."""

    name = "resume"
    label = "Resume"
    question = "Resume {name}?"
    consequences = "admin/console/resume.html"

    def available(self, target: Licence, *, by: HttpRequest) -> bool:
        return bool(target.status == Standing.SUSPENDED)

    def form(
        self, target: Licence, data: Mapping[str, Any] | None, *, by: HttpRequest
    ) -> ResumeForm:
        return ResumeForm(data, licence=target)

    def shown(self, target: Licence, form: Any) -> dict[str, Any]:
        return {"licence": target, "button": f"Resume {target.client}"}

    def do(self, target: Licence, *, then: str, **inputs: Any) -> Result:
        status = Standing.ACTIVE if then == Standing.ACTIVE else None
        licence = set_operator_status(licence_id=target.pk, status=status, **inputs)
        return Result(status_sentence(licence), licence.client, undo=(licence, Suspend.name))


class StatusForm(ReasonForm):
    status = forms.ChoiceField(
        widget=forms.RadioSelect,
        choices=(
            (Standing.ACTIVE, "Active: everything works."),
            (
                Standing.GRACE,
                "Grace: everything works, and shells warn until the grace period ends.",
            ),
            (Standing.SUSPENDED, "Suspended: shells lock and model calls are refused."),
            (BILLING, "As billing says: end the operator's decision."),
        ),
    )
    grace_until = UtcDateTimeField(
        label="Grace period ends (UTC)",
        required=False,
        help_text="Only for a grace period. People see this time.",
    )
    ends_at = UtcDateTimeField(
        label="Until (UTC)",
        required=False,
        help_text="Billing decides again from then on. Empty: until an operator changes it.",
    )


class SetStatus(Action):
    """Sets the operator's decision on a licence, which takes precedence over billing."""

    name = "status"
    label = "Change licence status"
    question = "Change the licence status of {name}?"
    form_class = StatusForm
    consequences = "admin/console/licence_status.html"

    def shown(self, target: Licence, form: Any) -> dict[str, Any]:
        return {"licence": target}

    def initial(self, target: Licence, *, by: HttpRequest) -> dict[str, Any]:
        return {"grace_until": target.operator_grace_until, "ends_at": target.operator_until}

    def do(
        self, target: Licence, *, status: str, grace_until: Any, ends_at: Any, **inputs: Any
    ) -> Result:
        licence = set_operator_status(
            licence_id=target.pk,
            status=None if status == BILLING else Standing(status),
            grace_until=grace_until if status == Standing.GRACE else None,
            ends_at=ends_at if status != BILLING else None,
            **inputs,
        )
        return Result(status_sentence(licence), licence.client, undo=(licence, self.name))


def status_sentence(licence: Licence) -> str:
    """A licence's status in a sentence about its client."""
    until = f" until {licence.grace_until:%-d %B %Y %H:%M} UTC" if licence.grace_until else ""
    now = {
        Standing.ACTIVE: "is active",
        Standing.GRACE: f"is in its grace period{until}",
        Standing.SUSPENDED: "is suspended",
    }[Standing(licence.status)]
    return f"{licence.client} {now}."
