"""The console page of the language models."""

from collections.abc import Iterable, Mapping
from copy import copy
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import Count, Min, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from accounts.audit import Actor
from config.console.actions import Action, Result
from config.console.base import ConsoleAdmin
from config.console.lists.columns import moment, tokens, yes_no
from llmproxy.admin.routes import described
from llmproxy.catalogue.choosing import as_offered, default_model_warning
from llmproxy.catalogue.offering import ModelTerms, add_model, change_model, switch_model
from llmproxy.catalogue.unpriced import unpriced_models, unpriced_warning
from llmproxy.models import PROMPTS_HOLD, LanguageModel
from usage.models import RunningCall, UsageRecord

DAY = timedelta(days=1)
UNPRICED = "No price yet: its calls do not count towards budgets."


class OfferForm(forms.ModelForm):  # type: ignore[type-arg]
    input_modalities = forms.MultipleChoiceField(
        choices=LanguageModel.Modality,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=PROMPTS_HOLD,
    )

    class Meta:
        model = LanguageModel
        fields = (
            "name",
            "provider_name",
            "output_limit",
            "context_length",
            "image_tokens",
            "input_modalities",
            "is_on",
            "plans",
        )
        widgets = {"plans": forms.CheckboxSelectMultiple}


class ChangeModel(Action):
    name = "offer"
    label = "Change model"
    question = "Change the model {name}?"
    form_class = OfferForm

    def effects(self, target: LanguageModel) -> Iterable[str]:
        yield "It applies to calls that start from now on; running calls are not affected."
        yield "The ledger keeps the requested name, so usage under an old name stays there."
        if target.name in unpriced_models():
            yield UNPRICED
        yield "Under another name at the provider it has no published prices until update_prices has looked them up."

    def form(
        self, target: LanguageModel, data: Mapping[str, Any] | None, *, by: HttpRequest
    ) -> OfferForm:
        form = OfferForm(data, instance=copy(target))
        # Switched by an action of its own, which says whom it affects and takes a reason.
        del form.fields["is_on"]
        return form

    def do(self, target: LanguageModel, *, by: Actor, now: datetime, **inputs: Any) -> Result:
        model = change_model(
            model_id=target.pk, terms=_terms({**inputs, "is_on": target.is_on}), by=by, now=now
        )
        return Result(f"{model} has been changed.", model)


class SwitchOff(Action):
    name = "off"
    label = "Switch off"
    question = "Switch off {name}?"
    destructive = True

    def available(self, target: LanguageModel, *, by: HttpRequest) -> bool:
        return target.is_on and target.name != settings.LLM_DEFAULT_MODEL

    def effects(self, target: LanguageModel) -> Iterable[str]:
        lately = UsageRecord.objects.filter(model=target.name, opened_at__gt=timezone.now() - DAY)
        number = lately.aggregate(calls=Count("pk"), people=Count("user", distinct=True))
        running = RunningCall.objects.filter(model=target.name).count()
        yield f"In the last 24 hours {number['people']:,} people made {number['calls']:,} calls to it."
        yield f"New calls to it are refused (model_not_found). Running calls continue: {running:,}."

    def do(self, target: LanguageModel, **inputs: Any) -> Result:
        model = switch_model(model_id=target.pk, on=False, **inputs)
        return Result(f"{model} is off.", model, undo=(model, "on"))


class SwitchOn(Action):
    name = "on"
    label = "Switch on"
    question = "Switch on {name}?"

    def available(self, target: LanguageModel, *, by: HttpRequest) -> bool:
        return not target.is_on

    def effects(self, target: LanguageModel) -> Iterable[str]:
        yield "People on its plans can call it at once."

    def do(self, target: LanguageModel, **inputs: Any) -> Result:
        model = switch_model(model_id=target.pk, on=True, **inputs)
        return Result(f"{model} is on.", model, undo=(model, "off"))


class AddModel(Action):
    name = "add"
    label = "Add model"
    form_class = OfferForm

    def effects(self, target: None) -> Iterable[str]:
        yield "People on the selected plans can call it at once."
        yield UNPRICED

    def form(self, target: None, data: Mapping[str, Any] | None, *, by: HttpRequest) -> OfferForm:
        return OfferForm(data)

    def do(self, target: None, *, by: Actor, now: datetime, **inputs: Any) -> Result:
        model = add_model(terms=_terms(inputs), by=by, now=now)
        return Result(f"{model} has been added.", model)


def _terms(given: dict[str, Any]) -> ModelTerms:
    return ModelTerms(**{**given, "plans": list(given["plans"])})


@admin.register(LanguageModel)
class LanguageModelAdmin(ConsoleAdmin):
    row_actions = (ChangeModel(), SwitchOn(), SwitchOff())
    add_action = AddModel()
    list_display = (
        "name",
        "provider_name",
        tokens("output_limit"),
        "context",
        tokens("image_tokens"),
        yes_no("is_on", "on"),
        "plan_names",
    )
    list_filter = ("is_on", "plans")
    search_fields = ("name", "provider_name")
    change_form_template = "admin/console/model.html"
    fields = (*list_display[1:5], "input", moment("created_at"))
    readonly_fields = ("context", "input", "plan_names")

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        if warning := default_model_warning():
            self.message_user(request, warning, messages.WARNING)
        if warning := unpriced_warning():
            self.message_user(request, warning, messages.WARNING)
        return super().changelist_view(request, extra_context)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        shortest = Min("routes__context_length")
        rows: QuerySet[Any] = super().get_queryset(request).annotate(published=shortest)
        return rows.prefetch_related("plans")

    @admin.display(description="context length", ordering="context_length")
    def context(self, model: Any) -> str:
        if model.context_length is not None:
            return f"{model.context_length:,}"
        return "unknown" if model.published is None else f"{model.published:,} (published)"

    @admin.display(description="input modalities")
    def input(self, model: LanguageModel) -> str:
        known = ", ".join(as_offered(model).input_modalities)
        return known if model.input_modalities else f"{known} (not set here)"

    @admin.display(description="plans")
    def plan_names(self, model: LanguageModel) -> str:
        return ", ".join(plan.name for plan in model.plans.all()) or "every plan"

    def page_context(self, request: HttpRequest, row: LanguageModel) -> dict[str, Any]:
        return {"routes": described(row.routes.all()), "plans": row.plans.all()}
