"""Gain of a second worker: as many callers to each of two as to one, all else equal.

Where there are as many cores as workers, what stands beside them (PostgreSQL, the provider, the load itself) takes
from the second worker what it leaves free beside the first. So the goal is measured with each worker held to a share
of a core, which leaves room for the rest; whether each had its share, and what this machine does without, is told too.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from tests.bench.complete import BODY, HEADERS
from tests.bench.figures import Line, in_turns
from tests.bench.rationing import rationed
from tests.bench.stage import Load, Served, Stage

PART = "scaling"
# For each worker, enough that none ever waits for work, however connections fall to two. As many for one as for each of
# two, or what is under way at the end, and not counted, would weigh more on one.
CALLERS = 16
PEOPLE = 64
SHARE = 0.2
SECONDS = 6


def measure(stage: Stage, *, rounds: int) -> list[Line]:
    tokens = [each.access for each in stage.callers(PEOPLE)]
    asked: dict[str, Callable[..., Load]] = {
        "status": partial(stage.load, path="/v1/license/status", tokens=tokens),
        "complete": partial(
            stage.load,
            path="/v1/llm/complete",
            method="POST",
            body=BODY,
            headers=HEADERS,
            tokens=tokens,
        ),
    }
    with stage.service(workers=1) as one, stage.service(workers=2) as two:
        return [line for name, ask in asked.items() for line in _lines(name, ask, one, two, rounds)]


def _lines(
    name: str, ask: Callable[..., Load], one: Served, two: Served, rounds: int
) -> list[Line]:
    ways = {
        (workers, share): partial(_load, ask, served, share)
        for share in (SHARE, None)
        for workers, served in ((1, one), (2, two))
    }
    for served in (one, two):
        ask(served, callers=_callers(served), seconds=1)
    loads = in_turns(ways, rounds=rounds)
    line = partial(Line, part=PART, against="one worker")
    held = f"{name}, each worker held to {SHARE:.0%} of a core"
    return [
        line(
            name=held,
            unit="requests/s",
            ours=[each.rps for each in loads[2, SHARE]],
            reference=[each.rps for each in loads[1, SHARE]],
            goal="two workers give at least 1.7 times one",
            at_least=1.7,
        ),
        line(
            name=f"{name}, what such a worker had",
            unit="of a core",
            ours=[_share(each, 2) for each in loads[2, SHARE]],
            reference=[_share(each, 1) for each in loads[1, SHARE]],
            goal="",
        ),
        line(
            name=f"{name}, as this machine is",
            unit="requests/s",
            ours=[each.rps for each in loads[2, None]],
            reference=[each.rps for each in loads[1, None]],
            goal="",
        ),
        line(
            name=f"{name}, CPU of the web workers",
            unit="ms/request",
            ours=[each.cpu_ms for each in loads[2, None]],
            reference=[each.cpu_ms for each in loads[1, None]],
            goal="",
        ),
        line(
            name=f"{name}, CPU beside the workers (PostgreSQL, Redis, provider)",
            unit="ms/request",
            ours=[_beside(each) for each in loads[2, None]],
            reference=[_beside(each) for each in loads[1, None]],
            goal="",
        ),
    ]


def _load(ask: Callable[..., Load], served: Served, share: float | None) -> Load:
    with rationed(served.workers, share) if share else nullcontext():
        load = ask(served, callers=_callers(served), seconds=SECONDS)
    assert load.failed == 0, f"{load.failed} of {load.requests} failed; see {served.log}"
    return load


def _callers(served: Served) -> int:
    return CALLERS * len(served.workers)


def _share(load: Load, workers: int) -> float:
    """Less than it may have is a machine without room: the round says nothing of the workers."""
    return load.cpu_ms / 1000 * load.rps / workers


def _beside(load: Load) -> float:
    return load.postgres_ms + load.redis_ms + load.provider_ms
