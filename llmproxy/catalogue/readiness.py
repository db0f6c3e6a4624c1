"""Finds the route that a call asks next: it takes the call, does not cool down, and has calls left in this minute."""

from collections.abc import Sequence
from datetime import datetime

from django.core.cache import cache

from config.api.problems import InvalidRequest
from llmproxy.catalogue import cooling
from llmproxy.dialects.protocol import ProviderUnavailable, Target
from llmproxy.prompts import image_addresses
from llmproxy.requests.call_request import CallRequest

MINUTE = 60


def able_targets(targets: Sequence[Target], request: CallRequest) -> list[Target]:
    """The targets that can take a request. It is held to the first, whose faults it is refused for."""
    able: list[Target] = []
    for target in targets:
        try:
            target.check(request)
            # What the dialect does not know is refused before it is read.
            image_addresses.check(request.fetched_images(), base_url=target.base_url)
        except InvalidRequest:
            if not able:
                raise
        else:
            able.append(target)
    return able


def ready_target(targets: Sequence[Target], *, is_only: bool, now: datetime) -> Target:
    """The first target that is ready, whose provider has one call less then. ``is_only``: the model has no other.

    Where all cool down, one that has failed is asked before its time, but none before the time that its provider asked
    for. Raises ``ProviderUnavailable`` where none is ready.
    """
    waits, failing = [], []
    for target in targets:
        found = None if is_only else cooling.cooling(target.route, now=now)
        if found is not None and not found.is_asked:
            failing.append(target)
        wait = _take_call(target, now) if found is None else found.seconds
        if wait is None:
            return target
        if found is None:
            cooling.end_try(target.route)
        waits.append(wait)
    for target in failing:
        if _take_call(target, now) is None:
            return target
    raise ProviderUnavailable(headers={"Retry-After": str(min(waits))} if waits else None)


def give_back(target: Target, *, now: datetime) -> None:
    """Undoes the choice of a target that was not asked after all."""
    cooling.end_try(target.route)
    if target.calls_per_minute is not None:
        cache.add(_calls_key(target, now), -1, 2 * MINUTE)


def _take_call(target: Target, now: datetime) -> int | None:
    """Counts a call to a provider; the seconds until it has others, or None if it had one left."""
    if target.calls_per_minute is None:
        return None
    key = _calls_key(target, now)
    number = 1 if cache.add(key, 1, 2 * MINUTE) else cache.incr(key)
    return MINUTE - int(now.timestamp()) % MINUTE if number > target.calls_per_minute else None


def _calls_key(target: Target, now: datetime) -> str:
    return f"llm:calls:{int(now.timestamp()) // MINUTE}:{target.provider}"
