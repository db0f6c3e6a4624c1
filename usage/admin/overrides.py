"""The page of overrides, and the actions that grant and end them."""

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from accounts.admin.fields import PersonField
from accounts.audit import Actor
from accounts.models import User
from config.console.actions import Action, ReasonForm, Result, UtcDateTimeField
from config.console.base import ConsoleAdmin, uuid_in
from config.console.lists.columns import ChoiceFilter, moment, person, tokens
from config.platform.periods import Period
from licensing.models import Licence
from usage.limits import PlanCaps
from usage.models import Override
from usage.overrides import Allowance, end_override, grant_extra, grant_override
from usage.spending.summaries import summary

REPLACES, ADDS = "Replaces the plan", "Adds to it"


class OverrideForm(ReasonForm):
    user = PersonField(label="Person", help_text="By email.")
    monthly_input_tokens = forms.IntegerField(min_value=0, required=False)
    monthly_output_tokens = forms.IntegerField(min_value=0, required=False)
    daily_tokens = forms.IntegerField(
        min_value=0, required=False, help_text="Both kinds together, per UTC day."
    )
    ends_at = UtcDateTimeField(label="Until (UTC)")
    on_top = forms.ChoiceField(
        label="Type",
        choices=(("", REPLACES), ("yes", ADDS)),
        required=False,
        widget=forms.RadioSelect,
        help_text="An extra allowance ends with this month at the latest.",
    )

    field_order = ("user", "on_top")


class GrantOverride(Action):
    name = "add"
    label = "Grant override"
    form_class = OverrideForm

    def effects(self, target: None) -> Iterable[str]:
        yield "The limits apply only to this person, from the next model call until their end date."
        yield f"{REPLACES}: an empty number is the plan's, 0 stops model calls; only the latest applies."
        yield f"{ADDS}: on top of all other numbers, and several add up. The daily limit may have to grow as well."

    def initial(self, target: None, *, by: HttpRequest) -> dict[str, Any]:
        on_top = "yes" if by.GET.get("on_top") == "yes" else ""
        ends_at = Period.of(timezone.now()).next_month if on_top else None
        return {"user": by.GET.get("user"), "on_top": on_top, "ends_at": ends_at}

    def form(self, target: None, data: Any, *, by: HttpRequest) -> OverrideForm:
        form = OverrideForm(data, initial=self.initial(target, by=by))
        person = User.objects.filter(pk__in=filter(None, [uuid_in(form.initial["user"])])).first()
        if person and (licence := Licence.objects.filter(client__users=person).first()):
            form.fields["user"].help_text = _standing(person, licence)
        return form

    def do(self, target: None, *, by: Actor, now: datetime, **inputs: Any) -> Result:
        override = (grant_extra if inputs["on_top"] else grant_override)(
            user_id=inputs["user"].pk,
            allowance=Allowance(**{each.name: inputs[each.name] for each in fields(Allowance)}),
            ends_at=inputs["ends_at"],
            reason=inputs["reason"],
            by=by,
            now=now,
        )
        said = f"The {_kind(override)} for {inputs['user']} is in effect."
        return Result(said, override, undo=(override, "end"))


class EndOverride(Action):
    name = "end"
    label = "End override"
    destructive = True

    def title(self, target: Override, name: str) -> str:
        return f"End the {_kind(target)} of {target.user}?"

    def available(self, target: Override, *, by: HttpRequest) -> bool:
        return target.ends_at > timezone.now()

    def effects(self, target: Override) -> Iterable[str]:
        if target.is_extra:
            yield "Its tokens are no longer added, from the next model call on."
        else:
            yield "From the next model call on, the plan's limits apply, or an earlier override still in effect."

    def do(self, target: Override, **inputs: Any) -> Result:
        end_override(override_id=target.pk, **inputs)
        return Result(f"The {_kind(target)} for {target.user} has ended.", target)


def _standing(person: User, licence: Licence) -> str:
    """Returns a person's use of their current caps."""
    month = summary(user_id=person.pk, plan=PlanCaps.of(licence.plan), now=timezone.now())
    shares = (("input", month.input), ("output", month.output), ("today", month.day))
    of = [f"{name} {each.used:,} of {_cap(each.cap)}" for name, each in shares]
    return f"Used now, and the caps that apply: {'; '.join(of)}."


def _cap(cap: int | None) -> str:
    return "no cap" if cap is None else f"{cap:,}"


def _kind(override: Override) -> str:
    return "extra allowance" if override.is_extra else "override"


class InForce(ChoiceFilter):
    title, parameter_name = "in effect", "in_force"
    choices_of = (("yes", "now"), ("no", "not now"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        now = timezone.now()
        in_force = {"starts_at__lte": now, "ends_at__gt": now}
        return rows.filter(**in_force) if value == "yes" else rows.exclude(**in_force)


class TypeFilter(ChoiceFilter):
    title, parameter_name, lookup = "type", "type", "is_extra"
    choices_of = (("0", REPLACES), ("1", ADDS))


@admin.register(Override)
class OverrideAdmin(ConsoleAdmin):
    row_actions = (EndOverride(),)
    add_action = GrantOverride()
    list_display = (
        person(linked=False),
        "type",
        tokens("monthly_input_tokens"),
        tokens("monthly_output_tokens"),
        tokens("daily_tokens"),
        moment("starts_at"),
        moment("ends_at"),
        "reason",
    )
    list_filter = (InForce, TypeFilter)
    link_lookups = ("is_extra__exact",)
    list_select_related = ("user",)
    date_hierarchy = "ends_at"
    search_fields = ("user__email", "reason")
    uuid_fields = ("user_id",)
    audit_target = "user_id"
    fields = (person(), *list_display[1:])
    readonly_fields = ("type",)

    @admin.display(description="type", ordering="is_extra")
    def type(self, override: Override) -> str:
        return ADDS if override.is_extra else REPLACES
