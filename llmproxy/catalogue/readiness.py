"""Finds the next route of a call: it does not cool down, and its provider has calls left in this minute.

Routes cool down after failures in a row, or for as long as their provider asked; for all processes, by the cache of
counters, and while Redis is away for each by itself. After failures one call at a time then tries the route, and the
others wait until that one begins to be answered. A silence counts as none of them, because a person may ask for what
takes any route too long: it takes two people, or six silences of which each was asked for after the one before.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.core.cache import cache

from llmproxy.dialects.protocol import ProviderUnavailable, RouteKey, Target

log = logging.getLogger(__name__)

MINUTE = 60
# Failures in a row, in one process.
FAILURES = 3
# Silences in a row, and the people who met them, in all processes together; counted anew after so many seconds.
SILENCES = 6
SILENT_TO = 2
SILENT_SECONDS = 3600
COOL_SECONDS = 30
# A cooling that would end so little later than the one that holds is not written again.
ALIKE_SECONDS = 5
# A failed route that nobody has asked for so long counts as new.
REMEMBERED_SECONDS = 600
# A try that has not begun to be answered for so long lets another begin.
TRY_SECONDS = 60
# A route's state, once read, is kept for this time, so that not every call queries it.
HOLDS_SECONDS = 1.0


class Cooling(NamedTuple):
    """The seconds until a route is asked again, and whether its provider asked for them."""

    seconds: int
    is_asked: bool

    def until(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self.seconds)


# Failures in a row by route, and the time on the monotonic clock of the first one.
_failures: Counter[RouteKey] = Counter()
_failing_since: dict[RouteKey, float] = {}
# When this process learned on that clock that a route has been silent, in any process.
_silent_since: dict[RouteKey, float] = {}
# The end of each route's cooling as last read, and when it was. In seconds of the Unix time; negative where the
# provider asked for it.
_seen: dict[RouteKey, tuple[float, int]] = {}
# Failed routes that a call of this process tries.
_tries: set[RouteKey] = set()


def ready_target(
    targets: Sequence[Target], *, is_only: bool, now: datetime, is_dry: bool = False
) -> Target:
    """The first target that is ready, whose provider has one call less then. ``is_only``: the model has no other.

    Where all cool down, one that has failed is asked before its time, but none before the time that its provider asked
    for. ``is_dry``: nothing is taken. Raises ``ProviderUnavailable`` where none is ready.
    """
    waits, failing = [], []
    for target in targets:
        found = None if is_only else cooling(target.route, now=now, is_dry=is_dry)
        if found is not None and not found.is_asked:
            failing.append(target)
        wait = _take_call(target, now, is_dry=is_dry) if found is None else found.seconds
        if wait is None:
            return target
        if found is None and not is_dry:
            end_try(target.route)
        waits.append(wait)
    for target in failing:
        if _take_call(target, now, is_dry=is_dry) is None:
            return target
    raise ProviderUnavailable(headers={"Retry-After": str(min(waits))} if waits else None)


@contextmanager
def taken_target(targets: Sequence[Target], *, now: datetime) -> Iterator[Target]:
    """The first target that is ready. Its provider has the call back where the block fails: it was not asked."""
    target = ready_target(targets, is_only=len(targets) == 1, now=now)
    try:
        yield target
    except Exception:
        end_try(target.route)
        if target.calls_per_minute is not None:
            cache.add(_calls_key(target, now), -1, 2 * MINUTE)
        raise


def _take_call(target: Target, now: datetime, *, is_dry: bool) -> int | None:
    """Counts a call to a provider; the seconds until it has others, or None if it had one left."""
    if target.calls_per_minute is None:
        return None
    key = _calls_key(target, now)
    number = (cache.get(key) or 0) + 1 if is_dry else _count(key, 2 * MINUTE)
    return MINUTE - int(now.timestamp()) % MINUTE if number > target.calls_per_minute else None


def _calls_key(target: Target, now: datetime) -> str:
    return f"llm:calls:{int(now.timestamp()) // MINUTE}:{target.provider}"


def cooling(route: RouteKey, *, now: datetime, is_dry: bool = False) -> Cooling | None:
    """Returns whether a route cools down. None lets the caller ask it, unless ``is_dry``."""
    until, at = _until(route), now.timestamp()
    if until and abs(until) > at:
        return Cooling(max(1, round(abs(until) - at)), is_asked=until < 0)
    if until <= 0:
        return None
    if is_dry:
        return Cooling(1, is_asked=False) if cache.get(_key("try", route)) else None
    if cache.add(_key("try", route), 1, TRY_SECONDS):
        _tries.add(route)
        return None
    return Cooling(1, is_asked=False)


def shown(route: RouteKey, *, now: datetime) -> Cooling | None:
    """Returns whether a route cools down, for operators."""
    until, at = cache.get(_key("cools", route)) or 0, now.timestamp()
    return Cooling(round(abs(until) - at), is_asked=until < 0) if abs(until) > at else None


def note_failure(route: RouteKey, *, wait: int | None, now: datetime) -> None:
    """Notes that a route has failed; ``wait`` are the seconds for which its provider asked."""
    _failures[route] += 1
    _failing_since.setdefault(route, time.monotonic())
    if wait:
        _cool(route, -(now.timestamp() + wait), seconds=wait, kept=wait)
    elif _failures[route] >= FAILURES or _until(route) > 0:
        _cool_for_now(route, now)


def note_silence(route: RouteKey, *, person: UUID, asked_at: datetime, now: datetime) -> None:
    """Notes that a route has been silent since a person's call was sent to it at ``asked_at``."""
    _silent_since.setdefault(route, time.monotonic())
    cache.set(_key("silent", route), 1, SILENT_SECONDS)
    row = f"silent:{cache.get(_key('row', route)) or 0}"
    people, at = _key(f"{row}:people", route), _key(f"{row}:at", route)
    if cache.add(_key(f"{row}:to:{person}", route), 1, SILENT_SECONDS):
        _count(people, SILENT_SECONDS)
    last, silences = cache.get(at) or 0, 0
    # Of many that end at the same moment one is counted.
    if _milliseconds(asked_at) > last and cache.add(
        _key(f"{row}:after:{last}", route), 1, SILENT_SECONDS
    ):
        cache.set(at, _milliseconds(now), SILENT_SECONDS)
        silences = _count(_key(f"{row}:number", route), SILENT_SECONDS)
    if silences >= SILENCES or (cache.get(people) or 0) >= SILENT_TO:
        _cool_for_now(route, now)
    end_try(route)


def note_beginning(route: RouteKey) -> None:
    """Notes that a route has begun to answer."""
    if _seen.get(route, (0.0, 0))[1] > 0:
        cache.delete(_key("cools", route))
        _seen[route] = time.monotonic(), 0
        end_try(route)
        log.info("route_answers_again", extra=route._asdict())


def end_try(route: RouteKey) -> None:
    """Lets another call try a route."""
    if route in _tries:
        _tries.discard(route)
        cache.delete(_key("try", route))


def note_answer(route: RouteKey, *, asked_at: float) -> None:
    """Notes a whole answer; one that was asked for before the failures began says nothing of them."""
    note_beginning(route)
    if route in _failing_since and asked_at > _failing_since[route]:
        del _failing_since[route], _failures[route]
    if route in _silent_since and asked_at > _silent_since[route]:
        del _silent_since[route]
        cache.delete(_key("silent", route))
        _count(_key("row", route), None)


def _cool_for_now(route: RouteKey, now: datetime) -> None:
    kept = COOL_SECONDS + REMEMBERED_SECONDS
    _cool(route, now.timestamp() + COOL_SECONDS, seconds=COOL_SECONDS, kept=kept)
    end_try(route)


def _cool(route: RouteKey, until: float, *, seconds: int, kept: int) -> None:
    known = _until(route)
    if known * until > 0 and abs(until) - abs(known) < ALIKE_SECONDS:
        # Many calls fail at once when a provider does.
        return
    cache.set(_key("cools", route), round(until), kept)
    _seen[route] = time.monotonic(), round(until)
    log.warning("route_cools_down", extra={**route._asdict(), "seconds": seconds})


def _until(route: RouteKey) -> int:
    read_at, until = _seen.get(route, (0.0, 0))
    if route not in _seen or time.monotonic() - read_at > HOLDS_SECONDS:
        until = cache.get(_key("cools", route)) or 0
        _seen[route] = time.monotonic(), until
        if route not in _silent_since and cache.get(_key("silent", route)):
            _silent_since[route] = time.monotonic()
    return until


def _count(key: str, seconds: int | None) -> int:
    return 1 if cache.add(key, 1, seconds) else cache.incr(key)


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _key(kind: str, route: RouteKey) -> str:
    return f"llm:{kind}:{route.provider}:{route.model}"
