"""Rows for each kind of attention about models and providers."""

from llmproxy.catalogue import health
from llmproxy.dialects.protocol import RouteKey
from llmproxy.models import LanguageModel, Provider, Route
from tests.console.bad_days import Day

# Kinds of the worst day alone.
QUIET = {"fetching", "members"}


def bad_day(day: Day) -> None:
    # Another test may have recorded routes of these names in this process.
    for known in (health.readiness._seen, health.readiness._failures):
        known.clear()
    day.settings.LLM_DEFAULT_MODEL = "nothing-like-it"
    provider = Provider.objects.create(name="fast", base_url="https://fast.example/v1")
    spare = Provider.objects.create(name="spare", base_url="https://spare.example/v1")
    for name in ("a", "b", "c", "d"):
        model = LanguageModel.objects.create(name=name, provider_name=name)
        for order, each in enumerate((provider, spare)):
            Route.objects.create(model=model, provider=each, provider_name=name, order=order)
        health.readiness.note_failure(RouteKey("fast", name), wait=600, now=day.now)


def worst_day(day: Day) -> None:
    """A provider with odd settings."""
    Provider.objects.filter(name="fast").update(fetches=Provider.Fetches.BEFORE, members="all")
