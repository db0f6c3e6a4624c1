"""Published prices and context lengths: looked up for each route in the data of an installed package, and written
where they differ.

Apart from the rules for operators, because a web process needs no list of all the world's models.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from typing import NamedTuple

from django.conf import settings
from genai_prices import Usage, calc_price
from genai_prices.types import PriceCalculation, TieredPrices

from accounts.audit import Actor
from config.platform.money import DOLLAR
from llmproxy.catalogue.prices import prices_of, update_route
from llmproxy.models import LanguageModel, Provider, Route
from usage.costs import Prices


class PublishedPrices(NamedTuple):
    """Published prices of a model. ``name``: of whom and what; ``is_tiered``: long prompts cost more than these.

    No ``context_length`` means that none is published.
    """

    prices: Prices
    name: str
    is_tiered: bool
    context_length: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A route's prices beside the published ones; None if its model is in no list."""

    route: Route
    published: PublishedPrices | None

    @property
    def is_different(self) -> bool:
        return self.published is not None and self.published.prices != prices_of(self.route)

    @property
    def is_longer_or_shorter(self) -> bool:
        """Returns whether the published context length differs."""
        known = self.route.context_length
        return self.published is not None and self.published.context_length != known

    @property
    def is_to_write(self) -> bool:
        """Returns whether there is anything that no operator has set."""
        return (self.is_different and not self.route.prices_are_set) or self.is_longer_or_shorter


def compare(*, now: datetime) -> list[Comparison]:
    """Looks up the published prices of all routes."""
    routes = Route.objects.select_related("model", "provider")
    return [
        Comparison(route=route, published=_published(route, now=now))
        for route in routes.order_by("model__name", "order", "pk")
    ]


def priced_default_model(*, now: datetime) -> LanguageModel | None:
    """The default model of the settings, not yet saved, where it has no row and its prices are published."""
    name = settings.LLM_DEFAULT_MODEL
    route = Route(provider=Provider(name=Provider.DEFAULT), provider_name=name)
    if LanguageModel.objects.filter(name=name).exists() or _published(route, now=now) is None:
        return None
    return LanguageModel(name=name, provider_name=name)


def update_prices(compared: list[Comparison], *, by: Actor, now: datetime) -> int:
    """Writes the published prices and context lengths that differ; returns the number of routes.

    Leaves prices that an operator has set, or that have changed since they were compared. Context lengths are no
    operator's: what one says stands on the model.
    """
    return sum(_write(each, by=by, now=now) for each in compared)


def _write(compared: Comparison, *, by: Actor, now: datetime) -> bool:
    route, published, is_written = compared.route, compared.published, False
    if published is not None and compared.is_different:
        is_written = update_route(route=route, prices=published.prices, by=by, now=now)
    if published is not None and compared.is_longer_or_shorter:
        same = Route.objects.filter(pk=route.pk, provider_name=route.provider_name)
        is_written |= bool(same.update(context_length=published.context_length))
    return is_written


def _published(route: Route, *, now: datetime) -> PublishedPrices | None:
    found = _look_up(route, now=now)
    if found is None:
        return None
    price = found.model_price
    given = (price.input_mtok, price.cache_read_mtok, price.output_mtok, price.cache_write_mtok)
    fresh, cached, output, written = (_millionths(each) for each in given)
    if fresh is None:
        return None
    if cached is not None and cached > fresh:
        cached = None
    return PublishedPrices(
        # Models without output, such as those for embeddings, have no price for it.
        prices=Prices(fresh, cached, output or 0, written),
        name=f"{found.provider.id} {found.model.id}",
        is_tiered=any(isinstance(each, TieredPrices) for each in given),
        context_length=found.model.context_window,
    )


def _look_up(route: Route, *, now: datetime) -> PriceCalculation | None:
    """The price of nothing, which names the prices: by the provider's address, else by its name or dialect."""
    name, provider, url = route.provider_name, route.provider.name, route.provider.base_url
    if provider == Provider.DEFAULT:
        provider, url = settings.LLM_PROVIDER, settings.LLM_BASE_URL
    with suppress(LookupError):
        return calc_price(Usage(), name, provider_api_url=url, genai_request_timestamp=now)
    with suppress(LookupError):
        return calc_price(Usage(), name, provider_id=provider, genai_request_timestamp=now)
    return None


def _millionths(price: Decimal | TieredPrices | None) -> int | None:
    """A price for a million tokens; of several tiers, that of short prompts."""
    if price is None:
        return None
    base = price.base if isinstance(price, TieredPrices) else price
    return int((base * DOLLAR).to_integral_value(ROUND_CEILING))
