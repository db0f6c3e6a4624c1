"""The targets that spending limits leave to a call."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from licensing.callers import Caller
from llmproxy.dialects.protocol import Target
from usage.costs import Prices
from usage.models import SpendLimit
from usage.spending.spend_limits import SpendStopped, reached, stopped_until

# The limits that are reached, by plan, each as of a version of the catalogue, which triggers change with them.
_kept: dict[int, tuple[UUID | None, tuple[SpendLimit, ...]]] = {}


def affordable(targets: Sequence[Target], *, caller: Caller, now: datetime) -> tuple[Target, ...]:
    """The targets whose spending limits are not reached, and those that cost nothing.

    Raises ``SpendStopped`` where none is left. One query for each version of the catalogue, and none beside it.
    """
    limits = reached_limits(caller)
    if not limits:
        return tuple(targets)
    ends = [stopped_until(limits, each.provider, now=now) for each in targets]
    left = tuple(
        each
        for each, end in zip(targets, ends, strict=True)
        if end is None or _is_free(each.prices)
    )
    if not left:
        raise SpendStopped(now=now, until=min(filter(None, ends)))
    return left


def reached_limits(caller: Caller) -> tuple[SpendLimit, ...]:
    """The limits that are reached, maybe on a day before, as this process knows them."""
    assert caller.plan_id is not None
    kept = _kept.get(caller.plan_id)
    if kept is None or kept[0] is None or kept[0] != caller.catalogue_version:
        # After the caller's version was read, so that they are never older than it.
        kept = _kept[caller.plan_id] = caller.catalogue_version, tuple(reached())
    return kept[1]


def _is_free(prices: Prices) -> bool:
    """Returns whether all prices are known to be zero."""
    return prices.input == prices.output == 0 and not (prices.cached_input or prices.cache_write)
