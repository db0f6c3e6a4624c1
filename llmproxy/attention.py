"""Kinds of attention about the catalogue of models."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Count, Exists, OuterRef, QuerySet, Subquery, Value

from config.platform.attention import Door, Finding, Kind, Level, Rows, kinds, number_of
from llmproxy.catalogue.health import Health, health_of
from llmproxy.catalogue.member_names import member_warnings, settings_warnings
from llmproxy.catalogue.vendors import fetching_warning
from llmproxy.dialects.protocol import RouteKey
from llmproxy.models import LanguageModel, Provider, Route
from usage.models import Budget

# Failures of the last minutes, no fewer than the answers, that show a provider as failing.
FAILURES = 5
# The names of routes in one finding.
NAMED = 6
SET_PRICES = Door(
    "Set prices", "llmproxy.route_prices", "llmproxy_route_changelist", "input_price__isnull=True"
)


def default_model(now: datetime) -> Iterator[Finding]:
    name = settings.LLM_DEFAULT_MODEL
    budget = Budget.objects.order_by().values_list(Value("budget"), Value(value=True))[:1]
    models = LanguageModel.objects.filter(name=name).order_by().values_list(Value("model"), "is_on")
    there_is = dict(models.union(budget, all=True))
    if there_is.get("model") is False:
        yield Finding(name=name, is_off=True, level=Level.ACT)
    elif "model" not in there_is and "budget" in there_is:
        yield Finding(name=name, is_off=False)


def unpriced() -> QuerySet[Any]:
    """Routes whose calls count towards no budget, where there is one; those behind another route are spare."""
    used = Route.objects.filter(provider__is_on=True, model__is_on=True)
    before = Exists(used.filter(model=OuterRef("model"), order__lt=OuterRef("order")))
    one = Budget.objects.order_by().values(one=Value(1))
    budgets = Subquery(one.annotate(number=Count("pk")).values("number"))
    rows = used.filter(Exists(Budget.objects.all()), input_price=None)
    rows = rows.annotate(is_spare=before, budgets=budgets)
    return rows.select_related("model", "provider").order_by("is_spare", "model", "order")


def unpriced_together(routes: list[Any]) -> Iterator[Finding]:
    """One finding of the first routes of models, and one of the spare ones."""
    for is_spare in (False, True):
        alike = [route for route in routes if route.is_spare == is_spare]
        if alike:
            yield Finding(
                pk="spare" if is_spare else "",
                routes=alike[:NAMED],
                others=len(alike[NAMED:]),
                number=len(alike),
                is_spare=is_spare,
                route=alike[0],
                affected=number_of(alike[0].budgets, "client"),
                acts="" if len(alike) > 1 else "prices",
            )


def providers(now: datetime) -> Iterator[Finding]:
    """Providers that fail, do not answer at all, or are paused."""
    routes = list(Route.objects.select_related("model", "provider"))
    rows = {each.provider.name: each.provider for each in routes if each.provider.is_on}
    keys = [RouteKey(each.provider.name, each.provider_name) for each in routes]
    found = health_of(rows, now=now, routes=keys)
    healths = {rows[name]: health for name, health in found.items()}
    ill = {each: health for each, health in healths.items() if _is_ill(health)}
    for provider, health in ill.items():
        own = [route for route in routes if route.provider_id == provider.pk]
        paused = [route for route in own if route.provider_name in health.cooling]
        coolings = health.cooling.values()
        yield Finding(
            pk=provider.pk,
            provider=provider,
            health=health,
            until=max((each.until(now) for each in coolings), default=None),
            next=_next(paused, routes, healths),
            route=next(iter(paused or own), None),
            level=Level.WATCH if health.answered else Level.ACT,
            affected=number_of(health.failed, "failure") if health.failed else "",
        )


def _is_ill(health: Health) -> bool:
    return bool(health.cooling) or (health.failed >= FAILURES and health.failed >= health.answered)


def _next(
    paused: list[Route], routes: list[Route], healths: Mapping[Provider, Health]
) -> Provider | None:
    """Returns the provider that answers in place of all paused routes, if there is a single one."""
    answering = set()
    for route in paused:
        others = sorted(
            (each for each in routes if each.model_id == route.model_id and each not in paused),
            key=lambda each: each.order,
        )
        ready = (
            each.provider
            for each in others
            if each.provider in healths and each.provider_name not in healths[each.provider].cooling
        )
        answering.add(next(ready, None))
    return answering.pop() if len(answering) == 1 else None


def fetching(rows: QuerySet[Provider], now: datetime) -> Iterator[Finding]:
    if warning := fetching_warning():
        yield Finding(warning=warning)


def named_members(now: datetime) -> Rows:
    """The providers that may be warned about, or the warnings where the settings cause one."""
    if next(settings_warnings(), None):
        return list(members(now))
    return Provider.objects.exclude(members__in=("", Provider.LISTED))


def members(now: datetime) -> Iterator[Finding]:
    for warning in member_warnings():
        yield Finding(warning=warning)


PROVIDERS, PROVIDER = "Providers", "llmproxy.view_provider"
BEFORE = Provider.objects.filter(fetches=Provider.Fetches.BEFORE)
kinds.add(
    Kind("default_model", 190, "Models", "llmproxy.view_languagemodel", default_model),
    Kind(
        "unpriced", 200, "Models", "llmproxy.view_route", unpriced(),
        on="route", acts="prices", merged=unpriced_together,
        door=SET_PRICES,
    ),
    Kind("provider", 210, PROVIDERS, PROVIDER, providers, on="route", acts="try"),
    Kind("fetching", 220, PROVIDERS, PROVIDER, BEFORE, then=fetching),
    Kind("members", 230, PROVIDERS, PROVIDER, named_members, then=lambda _, now: members(now)),
)  # fmt: skip
