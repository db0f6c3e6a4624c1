"""The factors by which routes multiply the count of a prompt: learned each night, or set by an operator."""

from collections.abc import Collection
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import NamedTuple

from django.db import transaction

from accounts.audit import Actor, record
from config.platform.problems.problem import Fault, InvalidRequest
from llmproxy.catalogue.routing import lock_route
from llmproxy.dialects.by_name import DIALECTS
from llmproxy.models import Provider, Route
from usage.spending.summaries import input_ratios, thinking_routes

LOWEST, HIGHEST = Decimal(1), Decimal(2)
STEP = Decimal("0.001")
LEARNED_FROM = timedelta(days=30)
# A tail of fewer calls says little, and frames weigh too much in shorter prompts.
LEAST_CALLS = 50
LEAST_COUNTED = 50
PERCENTILE = 0.99


class Learned(NamedTuple):
    """The routes that use a factor and may learn one, and those whose factor has changed or would change."""

    routes: int
    changed: int


def learn(*, by: Actor, now: datetime, dry_run: bool = False) -> Learned:
    """Sets each factor to what providers lately reported over what was counted, at the 99th percentile.

    A factor that an operator has set stays, and so does one whose model has too few reports since it last changed.
    A route whose provider reported reasoning tokens for most of its calls is known to think.
    """
    since = now - LEARNED_FROM
    renewed = Route.objects.filter(learns_since__gt=since).order_by("learns_since")
    since_by_route = {
        (model, name): begins
        for model, provider, begins in renewed.values_list(
            "model__name", "provider__name", "learns_since"
        )
        if begins is not None
        for name in _recorded_names(provider)
    }
    ratios = input_ratios(
        since=since,
        since_by_route=since_by_route,
        percentile=PERCENTILE,
        least_counted=LEAST_COUNTED,
        least_calls=LEAST_CALLS,
    )
    routes = Route.objects.filter(tokenizer=Route.Tokenizer.FACTOR, factor_is_set=False)
    known = [
        (pk, factor, bounded(max(found)))
        for pk, factor, model, provider in routes.values_list(
            "pk", "token_factor", "model__name", "provider__name"
        )
        if (
            found := [
                ratios[model, name] for name in _recorded_names(provider) if (model, name) in ratios
            ]
        )
    ]
    changed = [(pk, learned) for pk, factor, learned in known if learned != factor]
    if not dry_run:
        _learn_who_thinks(thinking_routes(since=since, since_by_route=since_by_route))
        changed = [each for each in changed if _learn(*each, by=by, now=now)]
    return Learned(routes.count(), len(changed))


def _learn_who_thinks(found: Collection[tuple[str, str]]) -> None:
    for route in Route.objects.select_related("model", "provider"):
        names = _recorded_names(route.provider.name)
        thinks = any((route.model.name, name) in found for name in names)
        if route.thinks != thinks:
            Route.objects.filter(pk=route.pk).update(thinks=thinks)


def bounded(ratio: float) -> Decimal:
    """A ratio as a factor: rounded up, and within its bounds."""
    return min(HIGHEST, max(LOWEST, Decimal(ratio).quantize(STEP, ROUND_CEILING)))


def _recorded_names(provider: str) -> list[str]:
    """A provider's names in the ledger, where earlier releases recorded the default one by its dialect."""
    if provider != Provider.DEFAULT:
        return [provider]
    others = set(Provider.objects.values_list("name", flat=True))
    return [provider, *(DIALECTS.keys() - others)]


def _learn(route_id: int, factor: Decimal, *, by: Actor, now: datetime) -> bool:
    """Returns False for a route that has meanwhile been set, changed or deleted."""
    with transaction.atomic():
        route = (
            Route.objects.select_for_update(of=("self",), no_key=True)
            .select_related("model", "provider")
            .filter(pk=route_id, tokenizer=Route.Tokenizer.FACTOR, factor_is_set=False)
            .first()
        )
        if route is None:
            return False
        _write("route:factor_learned", route, factor, is_set=False, by=by, now=now)
    return True


def set_factor(*, route_id: int, factor: Decimal, reason: str, by: Actor, now: datetime) -> Route:
    """Sets the factor of a route; nights leave it as it is. Raises ``InvalidRequest`` for a factor out of bounds."""
    if not LOWEST <= factor <= HIGHEST:
        detail = f"A factor must be between {LOWEST} and {HIGHEST}."
        raise InvalidRequest(errors=[Fault("/factor", "invalid", detail)])
    return _change("route:factor_set", route_id, factor, reason=reason, by=by, now=now)


def free_factor(*, route_id: int, reason: str, by: Actor, now: datetime) -> Route:
    """Lets nights learn the factor of a route again, from the one that it has."""
    return _change("route:factor_freed", route_id, None, reason=reason, by=by, now=now)


def _change(
    action: str, route_id: int, factor: Decimal | None, *, reason: str, by: Actor, now: datetime
) -> Route:
    """Sets a factor, or with None frees the one that the route has."""
    with transaction.atomic():
        route = lock_route(route_id)
        if route.tokenizer != Route.Tokenizer.FACTOR:
            detail = "This route counts by its model's own tokenizer and has no factor."
            raise InvalidRequest(errors=[Fault("/factor", "invalid", detail)])
        new, is_set = factor or route.token_factor, factor is not None
        _write(action, route, new, is_set=is_set, by=by, now=now, reason=reason)
    return route


def _write(
    action: str,
    route: Route,
    factor: Decimal,
    *,
    is_set: bool,
    by: Actor,
    now: datetime,
    reason: str = "",
) -> None:
    before = {"factor": str(route.token_factor), "set": route.factor_is_set}
    route.token_factor, route.factor_is_set = factor.quantize(STEP), is_set
    route.save(update_fields=("token_factor", "factor_is_set"))
    after = {"factor": str(route.token_factor), "set": is_set}
    record(action, route, by=by, now=now, reason=reason, before=before, after=after)
