"""Answers and failures of providers in the last minutes, over all processes, for operators.

A process adds up what happens and writes it every few seconds, so that a call costs no round trip.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from threading import Lock
from typing import NamedTuple

from django.core.cache import cache

from llmproxy.catalogue import readiness
from llmproxy.catalogue.readiness import Cooling
from llmproxy.dialects.protocol import RouteKey, Target
from llmproxy.models import Route

MINUTES = 5
KEPT_SECONDS = (MINUTES + 1) * 60


class Health(NamedTuple):
    """The answers and failures of a provider in the last minutes, and its routes that cool down, by its own names
    for their models."""

    answered: int
    failed: int
    cooling: dict[str, Cooling]


_counts: Counter[tuple[str, str]] = Counter()
_lock = Lock()


def health_of(
    providers: Iterable[str], *, now: datetime, routes: Iterable[RouteKey] | None = None
) -> dict[str, Health]:
    """The health of providers, by name; ``routes`` are theirs and others', where they are known already."""
    names = list(providers)
    cools: dict[str, dict[str, Cooling]] = {name: {} for name in names}
    for route in sorted(set(_routes_of(names) if routes is None else routes)):
        if route.provider in cools and (found := readiness.shown(route, now=now)):
            cools[route.provider][route.model] = found
    last = _minute(now)
    minutes = range(last - MINUTES + 1, last + 1)
    keys = {
        (kind, name): [_key(kind, name, minute) for minute in minutes]
        for kind in ("answered", "failed")
        for name in names
    }
    numbers = cache.get_many([key for every in keys.values() for key in every])

    def number(kind: str, name: str) -> int:
        return sum(numbers.get(key, 0) for key in keys[kind, name])

    return {
        name: Health(number("answered", name), number("failed", name), cools[name])
        for name in names
    }


def _routes_of(names: list[str]) -> Iterator[RouteKey]:
    routes = Route.objects.filter(provider__name__in=names).order_by()
    return (RouteKey(*each) for each in routes.values_list("provider__name", "provider_name"))


def note_answer(target: Target, *, asked_at: float) -> None:
    """Notes that a target has answered as it should, be it by a refusal of the request."""
    note(target.provider, failed=False)
    readiness.note_answer(target.route, asked_at=asked_at)


def note(provider: str, *, failed: bool) -> None:
    with _lock:
        _counts["failed" if failed else "answered", provider] += 1


def write_counts(*, now: datetime) -> None:
    """Adds what this process has counted to the counts of all."""
    with _lock:
        counts = dict(_counts)
        _counts.clear()
    for (kind, provider), number in counts.items():
        cache.add(_key(kind, provider, _minute(now)), number, KEPT_SECONDS)


def _key(kind: str, provider: str, minute: int) -> str:
    return f"llm:{kind}:{minute}:{provider}"


def _minute(at: datetime) -> int:
    return int(at.timestamp()) // 60
