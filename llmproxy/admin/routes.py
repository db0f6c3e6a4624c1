"""The console page of the routes."""

from collections.abc import Iterable
from copy import copy
from datetime import datetime
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from accounts.audit import Actor
from config.console.actions import Action, ReasonForm, Result
from config.console.base import ConsoleAdmin
from config.console.template_tags import lasting
from llmproxy.admin.prices import FreePrices, SetPrices, priced_at
from llmproxy.catalogue.factors import HIGHEST, LOWEST, STEP, free_factor, set_factor
from llmproxy.catalogue.routing import RouteTerms, add_route, change_route, remove_route
from llmproxy.catalogue.trial import MOST_SECONDS, try_route
from llmproxy.models import Route
from llmproxy.requests.call_request import Surface


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
    question = "Set the token factor of {name}?"
    form_class = FactorForm

    def available(self, target: Route, *, by: HttpRequest) -> bool:
        return target.tokenizer == Route.Tokenizer.FACTOR

    def effects(self, target: Route) -> Iterable[str]:
        yield "It applies to calls that start from now on, until you choose “Learn the factor automatically”."
        yield "Calls are charged what the provider reports, whatever the factor."

    def initial(self, target: Route, *, by: HttpRequest) -> dict[str, Any]:
        return {"factor": target.token_factor}

    def do(self, target: Route, *, by: Actor, factor: Decimal, **inputs: Any) -> Result:
        route = set_factor(route_id=target.pk, factor=factor, by=by, **inputs)
        return Result(f"The factor of {route} is {route.token_factor}.", route)


class FreeFactor(Action):
    name = "learn"
    label = "Learn the factor automatically"
    question = "Learn the token factor of {name} automatically?"

    def available(self, target: Route, *, by: HttpRequest) -> bool:
        return target.tokenizer == Route.Tokenizer.FACTOR and target.factor_is_set

    def effects(self, target: Route) -> Iterable[str]:
        yield f"It stays {target.token_factor} until a nightly job has learned another from what the provider reports."

    def do(self, target: Route, *, by: Actor, **inputs: Any) -> Result:
        route = free_factor(route_id=target.pk, by=by, **inputs)
        return Result(f"The token factor of {route} is learned automatically again.", route)


def counted_by(route: Route) -> str:
    """Describes how a route counts prompts, for operators."""
    if route.tokenizer != Route.Tokenizer.FACTOR:
        return route.get_tokenizer_display()
    by = "set by an operator" if route.factor_is_set else "learned"
    return f"{Route.Tokenizer.O200K} × {route.token_factor} ({by})"


def described(routes: QuerySet[Route]) -> list[tuple[Route, str, str]]:
    """Routes with how they count prompts and what they cost, for the pages of models and providers."""
    found = routes.select_related("model", "provider")
    return [(route, counted_by(route), priced_at(route)) for route in found]


class WayForm(forms.ModelForm):  # type: ignore[type-arg]
    surfaces = forms.MultipleChoiceField(
        choices=[(each.value, each.value) for each in Surface],
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="The endpoints that this route serves. None selected: all that the dialect has.",
    )

    class Meta:
        model = Route
        fields = ("provider_name", "order", "surfaces")


class NewWayForm(WayForm):
    class Meta:
        model = Route
        fields = ("model", "provider", "provider_name", "order", "surfaces")


class ChangedWayForm(ReasonForm, WayForm):
    """The form of a route that exists; unlike a new one, its change needs a reason."""


class AddRoute(Action):
    name = "add"
    label = "Add route"
    form_class = NewWayForm

    def effects(self, target: None) -> Iterable[str]:
        yield "Calls try a model's routes in order, moving to the next one if a provider fails before it answers."
        yield "No price yet: its calls do not count towards budgets."

    def form(self, target: None, data: Any, *, by: HttpRequest) -> NewWayForm:
        return NewWayForm(data)

    def do(self, target: None, *, by: Actor, now: datetime, **inputs: Any) -> Result:
        model, provider = inputs.pop("model"), inputs.pop("provider")
        route = add_route(
            model=model, provider=provider, terms=RouteTerms(**inputs), by=by, now=now
        )
        return Result(
            f"{route} has been added.", route, "Try it before calls take it.", undo=(route, "try")
        )


class ChangeRoute(Action):
    name = "way"
    label = "Change route"
    question = "Change the route {name}?"
    form_class = ChangedWayForm

    def effects(self, target: Route) -> Iterable[str]:
        yield "It applies to calls that start from now on; running calls are not affected."

    def form(self, target: Route, data: Any, *, by: HttpRequest) -> ChangedWayForm:
        return ChangedWayForm(data, instance=copy(target))

    def do(self, target: Route, *, by: Actor, now: datetime, **inputs: Any) -> Result:
        reason = inputs.pop("reason")
        route = change_route(
            route_id=target.pk, terms=RouteTerms(**inputs), reason=reason, by=by, now=now
        )
        return Result(f"{route} has been changed.", route)


class RemoveRoute(Action):
    name = "remove"
    label = "Remove route"
    question = "Remove the route {name}?"
    destructive = True

    def available(self, target: Route, *, by: HttpRequest) -> bool:
        return target.model.routes.exclude(pk=target.pk).exists()

    def effects(self, target: Route) -> Iterable[str]:
        yield "Calls that start from now on take the other routes of the model; running calls continue."

    def do(self, target: Route, *, by: Actor, **inputs: Any) -> Result:
        remove_route(route_id=target.pk, by=by, **inputs)
        return Result(f"{target} has been removed.")


class TryRoute(Action):
    name = "try"
    label = "Try it"
    question = "Try the route {name}?"
    form_class = forms.Form
    atomic = False

    def effects(self, target: Route) -> Iterable[str]:
        yield "Its provider is sent one short question, even if it is switched off. The provider may bill a few tokens."
        yield f"It may take up to {MOST_SECONDS:.0f} seconds."

    def do(self, target: Route, *, by: Actor, now: datetime, **inputs: Any) -> Result:
        trial = try_route(route_id=target.pk, by=by, now=now)
        if trial.failure:
            failed = f"{target}: the try failed after {lasting(trial.seconds)}."
            return Result(failed, target, f"{trial.failure} Nothing was changed.", messages.ERROR)
        told = "It reported no usage."
        if trial.usage:
            told = f"It reported {trial.usage.input} input and {trial.usage.output} output tokens."
        return Result(f"{target} answered in {lasting(trial.seconds)}.", target, told)


@admin.register(Route)
class RouteAdmin(ConsoleAdmin):
    row_actions = (
        TryRoute(),
        ChangeRoute(),
        SetFactor(),
        FreeFactor(),
        SetPrices(),
        FreePrices(),
        RemoveRoute(),
    )
    add_action = AddRoute()
    list_display = ("__str__", "provider_name", "order", "surface_names", "counted", "prices")
    list_filter = ("tokenizer", "factor_is_set", "prices_are_set")
    link_lookups = ("input_price__isnull",)
    list_select_related = ("model", "provider")
    search_fields = ("model__name", "provider_name")
    fields = ("model", "provider", "provider_name", "order", "surface_names", "counted", "prices")
    readonly_fields = ("surface_names", "counted", "prices")

    @admin.display(description="endpoints")
    def surface_names(self, route: Route) -> str:
        return ", ".join(route.surfaces) or "all that the dialect has"

    @admin.display(description="token estimate", ordering="token_factor")
    def counted(self, route: Route) -> str:
        return counted_by(route)

    @admin.display(description="prices per million tokens")
    def prices(self, route: Route) -> str:
        return priced_at(route)
