"""Prices of routes, which an operator sets, or frees for the published ones.

A price counts for the calls that are admitted from then on. Prices that are set stay until an operator frees them.
"""

from datetime import datetime

from django.db import transaction

from accounts.audit import Actor, check_reason, reason_faults, record
from config.platform.money import DOLLAR, in_dollars, readable_dollars
from config.platform.problems.problem import Fault, InvalidRequest
from llmproxy.catalogue.routing import lock_route
from llmproxy.models import Route
from usage.costs import Prices

# A dollar a token; beyond it is a slip of the keyboard.
MOST = DOLLAR * DOLLAR
FIELDS = ("input_price", "cached_input_price", "output_price", "cache_write_price")
_OPTIONAL = frozenset({"cached_input_price", "cache_write_price"})


def prices_of(route: Route) -> Prices:
    return Prices(*(getattr(route, name) for name in FIELDS))


def price_text(prices: Prices) -> str:
    """Prices in words, for a million tokens."""
    if prices.input is None or prices.output is None:
        return "none"
    named: list[tuple[str, int | None]] = [("input", prices.input), ("cached", prices.cached_input)]
    named += [("cache writes", prices.cache_write), ("output", prices.output)]
    return ", ".join(
        f"{name} {readable_dollars(each, 4)}" for name, each in named if each is not None
    )


def set_prices(*, route_id: int, prices: Prices, reason: str, by: Actor, now: datetime) -> Route:
    """Sets the prices of a route, which ``update_prices`` leaves from then on.

    Raises ``InvalidRequest`` without a reason, or for numbers that are no prices.
    """
    faults = reason_faults(reason)
    for name, price in zip(FIELDS, prices, strict=True):
        if price is None and name not in _OPTIONAL:
            faults.append(Fault(f"/{name}", "required", "Set both prices, or clear both."))
        elif price is not None and not 0 <= price <= MOST:
            faults.append(Fault(f"/{name}", "invalid", f"From $0 to {in_dollars(MOST)}."))
    if not faults and (prices.cached_input or 0) > (prices.input or 0):
        sentence = "Cached input cannot cost more than other input."
        faults.append(Fault("/cached_input_price", "invalid", sentence))
    if faults:
        raise InvalidRequest(errors=faults)
    return _change("route:prices_set", route_id, prices, reason=reason, by=by, now=now)


def free_prices(*, route_id: int, reason: str, by: Actor, now: datetime) -> Route:
    """Leaves the prices of a route to ``update_prices`` again; until then they stay.

    Raises ``InvalidRequest`` without a reason.
    """
    check_reason(reason)
    return _change("route:prices_freed", route_id, None, reason=reason, by=by, now=now)


def update_route(*, route: Route, prices: Prices, by: Actor, now: datetime) -> bool:
    """Writes published prices; returns False if an operator has set others, or they changed since they were read."""
    before = prices_of(route)
    with transaction.atomic():
        as_read = dict(zip(FIELDS, before, strict=True))
        rows = Route.objects.filter(pk=route.pk, prices_are_set=False, **as_read)
        if not rows.update(**dict(zip(FIELDS, prices, strict=True))):
            return False
        after = _audited(prices)
        record("route:prices_updated", route, by=by, now=now, before=_audited(before), after=after)
    return True


def _change(
    action: str, route_id: int, prices: Prices | None, *, reason: str, by: Actor, now: datetime
) -> Route:
    with transaction.atomic():
        route = lock_route(route_id)
        before = _audited(prices_of(route))
        if prices is not None:
            for name, price in zip(FIELDS, prices, strict=True):
                setattr(route, name, price)
        route.prices_are_set = prices is not None
        route.save(update_fields=[*FIELDS, "prices_are_set"])
        after = _audited(prices_of(route))
        record(action, route, by=by, now=now, reason=reason, before=before, after=after)
    return route


def _audited(prices: Prices) -> dict[str, str]:
    return {"prices": price_text(prices)}
