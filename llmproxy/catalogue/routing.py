"""Adds, changes and removes the routes of models. A change counts for the calls that start from then on."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from accounts.audit import Actor, record
from config.platform.problems.constraints import refused_as
from config.platform.problems.problem import Fault, InvalidRequest
from llmproxy.dialects.by_name import DIALECTS
from llmproxy.models import LanguageModel, Provider, Route, tokenizer_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTerms:
    """The settings of a route by an operator. No ``surfaces`` means all of the provider's dialect."""

    provider_name: str
    order: int
    surfaces: list[str]


def add_route(
    *, model: LanguageModel, provider: Provider, terms: RouteTerms, by: Actor, now: datetime
) -> Route:
    """Adds a route, without prices until they are looked up or set. Raises ``InvalidRequest``."""
    _check(provider, terms)
    with transaction.atomic():
        route = Route(model=model, provider=provider)
        _apply(route, terms, now=now)
        sentence = "This model has a route to this provider already."
        with refused_as(Fault("/provider", "unique", sentence)):
            route.save()
        record("route:added", route, by=by, now=now, after=_audited(route))
    return route


def change_route(
    *, route_id: int, terms: RouteTerms, reason: str, by: Actor, now: datetime
) -> Route:
    """Changes a route; running calls go on. Another name at the provider is another model there: its tokens
    are estimated from the start, and it has no prices until they are looked up. Raises ``InvalidRequest``.
    """
    with transaction.atomic():
        route = lock_route(route_id)
        _check(route.provider, terms)
        is_default = route.provider.name == Provider.DEFAULT
        if is_default and terms.provider_name != route.provider_name:
            sentence = (
                "For the provider from the settings, its name is set on the model's own page."
            )
            raise InvalidRequest(errors=[Fault("/provider_name", "invalid", sentence)])
        before = _audited(route)
        _apply(route, terms, now=now)
        route.save()
        after = _audited(route)
        record("route:changed", route, by=by, now=now, reason=reason, before=before, after=after)
    return route


def remove_route(*, route_id: int, reason: str, by: Actor, now: datetime) -> None:
    """Removes a route. Raises ``InvalidRequest`` for the last one of its model, which may be switched off instead."""
    with transaction.atomic():
        route = lock_route(route_id)
        # One after another, so that of two operators each leaves a route.
        LanguageModel.objects.select_for_update(no_key=True).get(pk=route.model_id)
        if not Route.objects.filter(model=route.model_id).exclude(pk=route.pk).exists():
            sentence = "A model needs a route. To end its calls, switch the model off."
            raise InvalidRequest(errors=[Fault("/reason", "last_route", sentence)])
        record("route:removed", route, by=by, now=now, reason=reason, before=_audited(route))
        route.delete()


def lock_route(route_id: int) -> Route:
    """A route with its model and provider, locked for the rest of the transaction."""
    routes = Route.objects.select_for_update(of=("self",), no_key=True)
    return routes.select_related("model", "provider").get(pk=route_id)


def _check(provider: Provider, terms: RouteTerms) -> None:
    if provider.name == Provider.DEFAULT:
        return
    able = set(DIALECTS[provider.dialect].codecs)
    if unable := sorted(set(terms.surfaces) - able):
        sentence = f"Providers of this dialect have no {', '.join(unable)}."
        raise InvalidRequest(errors=[Fault("/surfaces", "invalid", sentence)])


def _apply(route: Route, terms: RouteTerms, *, now: datetime) -> None:
    rename(route, terms.provider_name, now=now)
    route.order, route.surfaces = terms.order, sorted(terms.surfaces)


def rename(route: Route, provider_name: str, *, now: datetime) -> None:
    """Gives a route the provider's name for its model. Another name is counted in its own way, by reports from now on,
    and has neither prices nor a context length until they are looked up."""
    if route.provider_name == provider_name:
        return
    route.provider_name, route.learns_since, route.context_length = provider_name, now, None
    route.thinks = False
    route.tokenizer = tokenizer_of(provider_name)
    if not route.factor_is_set:
        route.token_factor = Route.FIRST_FACTOR
    if not route.prices_are_set:
        route.input_price = route.cached_input_price = None
        route.output_price = route.cache_write_price = None


def _audited(route: Route) -> dict[str, Any]:
    """The route's fields in the audit log."""
    return {
        "provider": route.provider.name,
        "provider_name": route.provider_name,
        "order": route.order,
        "surfaces": route.surfaces,
        "tokenizer": route.tokenizer,
    }
