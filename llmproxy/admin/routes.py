"""The console pages of routes and providers."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from accounts.audit import Actor
from config.console.actions import Action, ReasonForm, Result
from config.console.base import ConsoleAdmin
from config.console.columns import moment, yes_no
from llmproxy.admin.prices import FreePrices, SetPrices, priced_at
from llmproxy.models import Provider, Route
from llmproxy.tokens.factors import HIGHEST, LOWEST, STEP, free_factor, set_factor


class FactorForm(ReasonForm):
    factor = forms.DecimalField(
        min_value=LOWEST,
        max_value=HIGHEST,
        decimal_places=-int(STEP.as_tuple().exponent),
        help_text=f"Between {LOWEST} and {HIGHEST}. Prompts are counted in o200k_base and multiplied by it.",
    )


class SetFactor(Action):
    name = "factor"
    label = "Set token factor"
    form_class = FactorForm

    def available(self, target: Route, *, by: HttpRequest) -> bool:
        return target.tokenizer == Route.Tokenizer.FACTOR

    def effects(self, target: Route) -> Iterable[str]:
        yield "It counts for the estimates of calls that start from now on, and stays until it is left to nights again."
        yield "Calls are charged what the provider reports, whatever the factor."

    def initial(self, target: Route, *, by: HttpRequest) -> dict[str, Any]:
        return {"factor": target.token_factor}

    def do(self, target: Route, *, by: Actor, factor: Decimal, **given: Any) -> Result:
        route = set_factor(route_id=target.pk, factor=factor, by=by, **given)
        return Result(f"The factor of {route} is {route.token_factor}.", route)


class FreeFactor(Action):
    name = "learn"
    label = "Let nights learn the factor"

    def available(self, target: Route, *, by: HttpRequest) -> bool:
        return target.tokenizer == Route.Tokenizer.FACTOR and target.factor_is_set

    def effects(self, target: Route) -> Iterable[str]:
        yield f"It stays {target.token_factor} until a night has learned another from what the provider reports."

    def do(self, target: Route, *, by: Actor, **given: Any) -> Result:
        route = free_factor(route_id=target.pk, by=by, **given)
        return Result(f"Nights learn the factor of {route} again.", route)


def counted_by(route: Route) -> str:
    """How a route counts prompts, for operators."""
    if route.tokenizer != Route.Tokenizer.FACTOR:
        return route.get_tokenizer_display()
    by = "set by an operator" if route.factor_is_set else "learned by nights"
    return f"{route.get_tokenizer_display()} of {route.token_factor}, {by}"


@admin.register(Route)
class RouteAdmin(ConsoleAdmin):
    row_actions = (SetFactor(), FreeFactor(), SetPrices(), FreePrices())
    list_display = ("__str__", "provider_name", "counted", "prices")
    list_filter = ("tokenizer", "factor_is_set", "prices_are_set")
    list_select_related = ("model", "provider")
    search_fields = ("model__name", "provider_name")
    fields = ("model", "provider", "provider_name", "order", "counted", "prices")
    readonly_fields = ("counted", "prices")

    @admin.display(description="prompts counted by", ordering="token_factor")
    def counted(self, route: Route) -> str:
        return counted_by(route)

    @admin.display(description="prices of a million tokens")
    def prices(self, route: Route) -> str:
        return priced_at(route)


@admin.register(Provider)
class ProviderAdmin(ConsoleAdmin):
    list_display = ("name", "dialect", "address", yes_no("is_on", "on"))
    fields = (*list_display, moment("created_at"))
    readonly_fields = ("dialect", "address")

    @admin.display
    def dialect(self, provider: Provider) -> str:
        return settings.LLM_PROVIDER

    @admin.display
    def address(self, provider: Provider) -> SafeString:
        return format_html("{} (LLM_BASE_URL)", settings.LLM_BASE_URL)
