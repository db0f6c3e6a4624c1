"""Kinds of attention about the catalogue of models."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef, QuerySet

from config.platform.attention import Finding, Kind, Level, kinds
from llmproxy.catalogue import readiness
from llmproxy.catalogue.health import MINUTES, health_of
from llmproxy.catalogue.member_names import member_warnings
from llmproxy.catalogue.vendors import fetching_warning
from llmproxy.dialects.protocol import RouteKey
from llmproxy.models import LanguageModel, Provider, Route
from usage.models import Budget

# Failures of the last minutes, no fewer than the answers, that show a provider as failing.
FAILURES = 5


def default_model(now: datetime) -> Iterator[Finding]:
    name = settings.LLM_DEFAULT_MODEL
    is_on = LanguageModel.objects.filter(name=name).values_list("is_on", flat=True).first()
    if is_on is False:
        yield Finding(name=name, is_off=True, level=Level.ACT)
    elif is_on is None and Budget.objects.exists():
        yield Finding(name=name, is_off=False)


def unpriced() -> QuerySet[Any]:
    """Routes whose calls count towards no budget, where there is one; those behind another route are spare."""
    used = Route.objects.filter(provider__is_on=True, model__is_on=True)
    before = Exists(used.filter(model=OuterRef("model"), order__lt=OuterRef("order")))
    rows = used.filter(Exists(Budget.objects.all()), input_price=None).annotate(is_spare=before)
    return rows.select_related("model", "provider").order_by("is_spare", "model", "order")


def providers(now: datetime) -> Iterator[Finding]:
    """Providers that fail, do not answer at all, or are paused."""
    rows = {each.name: each for each in Provider.objects.filter(is_on=True)}
    for name, health in health_of(rows, now=now).items():
        if health.cooling or (health.failed >= FAILURES and health.failed >= health.answered):
            routes = Route.objects.filter(provider=rows[name]).select_related("model", "provider")
            paused = routes.filter(provider_name__in=health.cooling) if health.cooling else routes
            coolings = health.cooling.values()
            yield Finding(
                pk=rows[name].pk,
                provider=rows[name],
                health=health,
                until=max((each.until(now) for each in coolings), default=None),
                next=_next(paused, now=now) if health.cooling else None,
                route=paused.first(),
                level=Level.WATCH if health.answered else Level.ACT,
                whom=f"{health.failed:,} failed in {MINUTES} min",
            )


def _next(paused: QuerySet[Route], *, now: datetime) -> Provider | None:
    """Returns the provider that answers in place of all paused routes, if there is a single one."""
    answering = set()
    for route in paused:
        others = route.model.routes.filter(provider__is_on=True).exclude(pk__in=paused)
        ready = (
            other
            for other in others.select_related("provider").order_by("order")
            if not readiness.shown(RouteKey(other.provider.name, other.provider_name), now=now)
        )
        found = next(ready, None)
        answering.add(found.provider if found else None)
    return answering.pop() if len(answering) == 1 else None


def fetching(rows: QuerySet[Provider], now: datetime) -> Iterator[Finding]:
    if warning := fetching_warning():
        yield Finding(warning=warning)


def members(now: datetime) -> Iterator[Finding]:
    for warning in member_warnings():
        yield Finding(warning=warning)


PROVIDERS, PROVIDER = "Providers", "llmproxy.view_provider"
BEFORE = Provider.objects.filter(fetches=Provider.Fetches.BEFORE)
kinds.add(
    Kind("default_model", 190, "Models", "llmproxy.view_languagemodel", default_model),
    Kind("unpriced", 200, "Models", "llmproxy.view_route", unpriced(), acts="prices"),
    Kind("provider", 210, PROVIDERS, PROVIDER, providers, on="route", acts="try"),
    Kind("fetching", 220, PROVIDERS, PROVIDER, BEFORE, then=fetching),
    Kind("members", 230, PROVIDERS, PROVIDER, members),
)
