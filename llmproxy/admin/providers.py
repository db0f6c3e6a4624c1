"""The console pages of the providers."""

import dataclasses
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin
from django.db.models import Count, Sum
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from accounts.audit import Actor
from config.console.actions import Action, ReasonForm, Result
from config.console.base import ConsoleAdmin
from config.console.lists.columns import moment, yes_no
from config.platform.money import readable_dollars
from llmproxy.admin.routes import described
from llmproxy.catalogue.health import MINUTES, health_of
from llmproxy.catalogue.limit_names import limit_name
from llmproxy.catalogue.member_names import member_names, passes_all
from llmproxy.catalogue.providers import (
    ProviderTerms,
    add_provider,
    change_provider,
    switch_provider,
)
from llmproxy.catalogue.vendors import fetches
from llmproxy.dialects.by_name import DIALECTS
from llmproxy.models import Provider
from usage.models import UsageRecord

SPEND_OF = timedelta(days=1)
PROMPTS_GO_THERE = "The prompts of everybody whose calls take a route to it are sent to this address, with its key."


class TermsForm(forms.ModelForm):  # type: ignore[type-arg]
    api_key = forms.CharField(
        label="key",
        required=False,
        max_length=500,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="Stored encrypted and never shown again. Empty: its current key, if it has one.",
    )

    class Meta:
        model = Provider
        fields = tuple(each.name for each in dataclasses.fields(ProviderTerms))
        help_texts: ClassVar = {
            "base_url": "As the provider's own SDK takes it, which for the vendor itself is "
            + " or ".join(each.address for each in DIALECTS.values())
            + "."
        }


class ChangedTermsForm(ReasonForm, TermsForm):
    """The form of a provider that exists; unlike a new one, its change needs a reason."""


class AddProvider(Action):
    name = "add"
    label = "Add provider"
    form_class = TermsForm

    def effects(self, target: None) -> Iterable[str]:
        yield PROMPTS_GO_THERE
        yield "No calls go to it until a model has a route to it."

    def form(self, target: None, data: Any, *, by: HttpRequest) -> TermsForm:
        return TermsForm(data)

    def do(self, target: None, *, by: Actor, now: datetime, **inputs: Any) -> Result:
        key = inputs.pop("api_key")
        provider = add_provider(terms=ProviderTerms(**inputs), key=key, by=by, now=now)
        return Result(f"{provider} has been added.", provider, "Give models a route to it.")


class ChangeProvider(Action):
    name = "terms"
    label = "Change provider"
    question = "Change the provider {name}?"
    form_class = ChangedTermsForm

    def available(self, target: Provider, *, by: HttpRequest) -> bool:
        return target.name != Provider.DEFAULT

    def effects(self, target: Provider) -> Iterable[str]:
        yield PROMPTS_GO_THERE
        yield "It applies to calls that start from now on; running calls are not affected."
        yield "Its key is bound to its name and address: to change either, enter the key again."

    def form(self, target: Provider, data: Any, *, by: HttpRequest) -> ChangedTermsForm:
        # A copy: the form writes what was entered into its instance.
        return ChangedTermsForm(data, instance=Provider.objects.get(pk=target.pk))

    def do(self, target: Provider, *, by: Actor, now: datetime, **inputs: Any) -> Result:
        key, reason = inputs.pop("api_key"), inputs.pop("reason")
        provider = change_provider(
            provider_id=target.pk,
            terms=ProviderTerms(**inputs),
            key=key,
            reason=reason,
            by=by,
            now=now,
        )
        return Result(f"{provider} has been changed.", provider)


class SwitchOff(Action):
    name = "off"
    label = "Switch off"
    question = "Switch off {name}?"
    destructive = True

    def available(self, target: Provider, *, by: HttpRequest) -> bool:
        return target.is_on

    def effects(self, target: Provider) -> Iterable[str]:
        yield "Calls that start from now on take the next route of their model; running calls continue."
        yield from sorted(
            f"{route.model} has no other route, so its calls are refused."
            for route in target.routes.select_related("model")
            if not route.model.routes.exclude(pk=route.pk).filter(provider__is_on=True).exists()
        )

    def do(self, target: Provider, *, by: Actor, **inputs: Any) -> Result:
        provider = switch_provider(provider_id=target.pk, on=False, by=by, **inputs)
        return Result(f"{provider} is off.", provider)


class SwitchOn(Action):
    name = "on"
    label = "Switch on"
    question = "Switch on {name}?"

    def available(self, target: Provider, *, by: HttpRequest) -> bool:
        return not target.is_on

    def effects(self, target: Provider) -> Iterable[str]:
        yield "Calls that start from now on can go to it again."

    def do(self, target: Provider, *, by: Actor, **inputs: Any) -> Result:
        provider = switch_provider(provider_id=target.pk, on=True, by=by, **inputs)
        return Result(f"{provider} is on.", provider)


@admin.register(Provider)
class ProviderAdmin(ConsoleAdmin):
    row_actions = (ChangeProvider(), SwitchOff(), SwitchOn())
    add_action = AddProvider()
    change_form_template = "admin/console/provider.html"
    list_display = ("name", "dialect_label", "address", yes_no("is_on", "on"), "health", "spend")
    fields = (
        "dialect_label",
        "address",
        *list_display[4:],
        "has_key",
        "member_names",
        "fetches_shown",
        "limit_name_shown",
        "calls_per_minute",
        "read_timeout",
        moment("created_at"),
    )
    # The values that it works out.
    readonly_fields = fields[:8]

    def page_context(self, request: HttpRequest, row: Provider) -> dict[str, Any]:
        return {"routes": described(row.routes.all())}

    @admin.display(description="dialect")
    def dialect_label(self, provider: Provider) -> str:
        if provider.name == Provider.DEFAULT:
            return settings.LLM_PROVIDER
        return provider.get_dialect_display()

    @admin.display(description="extra request fields")
    def member_names(self, provider: Provider) -> str:
        names = ", ".join(sorted(member_names(provider))) or "known ones only"
        told = "all, but those known to cost more" if passes_all(provider) else names
        return f"{told} (LLM_MEMBERS)" if provider.name == Provider.DEFAULT else told

    @admin.display
    def address(self, provider: Provider) -> SafeString:
        if provider.name == Provider.DEFAULT:
            return format_html("{} (LLM_BASE_URL)", settings.LLM_BASE_URL)
        return format_html("{}", provider.base_url)

    @admin.display(boolean=True, description="fetches images and files by URL")
    def fetches_shown(self, provider: Provider) -> bool:
        return fetches(provider)

    @admin.display(description="name of the output limit")
    def limit_name_shown(self, provider: Provider) -> str:
        return limit_name(provider)

    @admin.display(boolean=True, description="has a key")
    def has_key(self, provider: Provider) -> bool:
        return provider.name == Provider.DEFAULT or provider.api_key is not None

    @admin.display(description=f"calls of {MINUTES} minutes")
    def health(self, provider: Provider) -> str:
        now = timezone.now()
        found = health_of([provider.name], now=now)[provider.name]
        said = [f"{found.answered:,} answered, {found.failed:,} failed"]
        said += [
            f"no calls for {model} until {each.until(now):%H:%M} UTC"
            + (", at its request" if each.is_asked else "")
            for model, each in found.cooling.items()
        ]
        return "; ".join(said)

    @admin.display(description="calls and spend in 24 hours")
    def spend(self, provider: Provider) -> str:
        since = timezone.now() - SPEND_OF
        calls = UsageRecord.objects.filter(provider=provider.name, opened_at__gte=since)
        told = calls.aggregate(calls=Count("pk"), cost=Sum("cost"))
        return f"{told['calls']:,} calls, {readable_dollars(told['cost'] or 0)}"
