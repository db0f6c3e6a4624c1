"""The actions that set and free the prices of a route, on its page."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from django import forms
from django.http import HttpRequest

from config.console.actions import Action, ReasonForm, Result
from config.platform.money import DOLLAR, decimal
from llmproxy.catalogue.prices import FIELDS, MOST, free_prices, price_text, prices_of, set_prices
from llmproxy.models import Route
from usage.costs import Prices


def _price(label: str, **options: Any) -> forms.DecimalField:
    most = decimal(MOST)
    return forms.DecimalField(label=label, min_value=0, max_value=most, decimal_places=6, **options)


class PricesForm(ReasonForm):
    input_price = _price("Dollars per million input tokens")
    cached_input_price = _price(
        "Dollars per million cached input tokens",
        required=False,
        help_text="Empty: they cost the same as other input.",
    )
    output_price = _price("Dollars per million output tokens")
    cache_write_price = _price(
        "Dollars per million input tokens written to a cache",
        required=False,
        help_text="Empty: they cost the same as other input.",
    )


class SetPrices(Action):
    name = "prices"
    label = "Set prices"
    question = "Set the prices of {name}?"
    form_class = PricesForm

    def effects(self, target: Route) -> Iterable[str]:
        yield "New calls use these prices. Automatic updates skip this route until you return to published prices."

    def initial(self, target: Route, *, by: HttpRequest) -> dict[str, Any]:
        prices = zip(FIELDS, prices_of(target), strict=True)
        return {name: decimal(price) for name, price in prices if price is not None}

    def do(self, target: Route, **inputs: Any) -> Result:
        prices = Prices(*(_millionths(inputs.pop(name)) for name in FIELDS))
        route = set_prices(route_id=target.pk, prices=prices, **inputs)
        return Result(f"The prices of {route} are set.", route)


class FreePrices(Action):
    name = "published_prices"
    label = "Return to published prices"
    question = "Return {name} to published prices?"

    def available(self, target: Route, *, by: HttpRequest) -> bool:
        return target.prices_are_set

    def effects(self, target: Route) -> Iterable[str]:
        yield f"They stay ({price_text(prices_of(target))}) until update_prices writes the published ones."

    def do(self, target: Route, **inputs: Any) -> Result:
        route = free_prices(route_id=target.pk, **inputs)
        return Result(f"{route} follows published prices again.", route)


def priced_at(route: Route) -> str:
    """A route's prices, for operators."""
    by = ", set by an operator" if route.prices_are_set else ""
    return f"{price_text(prices_of(route))}{by}"


def _millionths(dollars: Decimal | None) -> int | None:
    return None if dollars is None else int(dollars * DOLLAR)
