"""Slowdown from ten thousand to ten million rows, on one server, taking turns.

``ROWS=1000000`` makes the large database smaller. Every hot statement's plan at both sizes is written beside the
report; nights remove as much at both sizes, and what they look at is counted; the console's lists by themselves.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from itertools import cycle, islice
from statistics import median
from typing import Any

from tests.bench import nights, plans
from tests.bench.complete import BODY
from tests.bench.console import PAGES, Console
from tests.bench.figures import Line, in_turns
from tests.bench.grown import LARGE, SMALL, Person, Side, grown
from tests.bench.processes import cpu_seconds, tree
from tests.bench.stage import HOST, Stage
from tests.releases.conftest import Release
from tests.releases.signing import Signer
from tests.served.releasing import ServedPipeline
from tests.standins.cdn import running_cdn
from tests.tools.folders import LOCAL, claim

PART = "growth"
# So many to each side in a round, so many before it is the other's turn; of what is published each one.
REQUESTS, BLOCK = 300, 10
PUBLISHES = 20
MOST = 1.2
# A night takes a tenth of a second: it has so many rounds at least.
NIGHTS = 5
# Removed rows lie all over an index that is two pages deeper and does not fit into the processor's caches.
MOST_OF_A_NIGHT = 2.0
# Of indexes that are a level deeper.
MOST_PAGES_OF_A_NIGHT = 1.5
MOST_OF_A_PAGE = 500.0
Ask = Callable[["Caller", Person], None]
Requests = dict[str, list[Callable[[], None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Milliseconds of the middle request, and CPU milliseconds that PostgreSQL spent on one."""

    ms: float
    postgres_ms: float


def measure(stage: Stage, *, rounds: int) -> list[Line]:
    with running_cdn() as cdn:
        signer = Signer()
        environ = ServedPipeline(signer, cdn, stage.folder / "published").environ()
        with grown(stage, environ) as sides:
            pipelines = {
                name: ServedPipeline(
                    signer, cdn, stage.folder / "published", url=side.served.url, channel=name
                )
                for name, side in sides.items()
            }
            return compare(stage, sides, pipelines, rounds=rounds)


def compare(
    stage: Stage,
    sides: dict[str, Side],
    pipelines: dict[str, ServedPipeline],
    *,
    rounds: int,
) -> list[Line]:
    """The two against each other, once there are both."""
    lines: list[Line] = []
    for name, ask in ASKED.items():
        lines += _lines(stage, name, partial(_asked, sides, ask), rounds, block=BLOCK)
    lines += _lines(stage, "publish", partial(_published, pipelines), rounds, block=1)
    where = claim(claim(LOCAL) / "bench") / "growth-plans.md"
    where.write_text("\n".join(plans.told(sides)))
    lines += [*_nights(sides, rounds), *_console(sides, rounds)]
    return lines


class Caller:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection(HOST, port, timeout=60)

    def send(
        self, method: str, path: str, person: Person | None = None, body: Any = None
    ) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"} if body else {}
        if person is not None:
            headers["Authorization"] = f"Bearer {person.access}"
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status == 200, (path, response.status, answer[:500])
        read: dict[str, Any] = json.loads(answer)
        return read


def _status(caller: Caller, person: Person) -> None:
    caller.send("GET", "/v1/license/status", person)


def _complete(caller: Caller, person: Person) -> None:
    caller.send("POST", "/v1/llm/complete", person, BODY)


def _refresh(caller: Caller, person: Person) -> None:
    answer = caller.send("POST", "/v1/auth/refresh", body=json.dumps({"refresh": person.refresh}))
    person.refresh = answer["refresh"]


def _usage(caller: Caller, person: Person) -> None:
    caller.send("GET", "/v1/usage/me", person)


ASKED: dict[str, Ask] = {
    "license/status": _status,
    "llm/complete: admission and settlement": _complete,
    "auth/refresh": _refresh,
    "usage/me": _usage,
}


def _asked(sides: dict[str, Side], ask: Ask) -> Requests:
    return {name: _asked_of(side, ask) for name, side in sides.items()}


def _asked_of(side: Side, ask: Ask) -> list[Callable[[], None]]:
    caller = Caller(side.served.port)
    return [partial(ask, caller, person) for person in islice(cycle(side.people), REQUESTS)]


def _published(pipelines: dict[str, ServedPipeline]) -> Requests:
    # Made beforehand: what is signed and uploaded is not the service's time. Newer than any before.
    return {
        name: [
            partial(_publish, pipeline, pipeline.made(f"{time.time_ns()}.0.{number}"))
            for number in range(PUBLISHES)
        ]
        for name, pipeline in pipelines.items()
    }


def _publish(pipeline: ServedPipeline, release: Release) -> None:
    answer = pipeline.post(release)
    assert answer.status_code == 201, answer.text


def _taken(stage: Stage, requests: Requests, *, block: int) -> dict[str, Taken]:
    """A few requests to one side, as many to the other, so that what slows down the machine for a second slows both."""
    seconds: dict[str, list[float]] = {name: [] for name in requests}
    spent = dict.fromkeys(requests, 0.0)
    for number in range(0, max(map(len, requests.values())), block):
        for name in list(requests) if number // block % 2 == 0 else reversed(requests):
            before = cpu_seconds(tree(stage.postgres.pid))
            for request in requests[name][number : number + block]:
                began = time.perf_counter()
                request()
                seconds[name].append(time.perf_counter() - began)
            spent[name] += cpu_seconds(tree(stage.postgres.pid)) - before
    return {
        name: Taken(ms=median(each) * 1000, postgres_ms=spent[name] / len(each) * 1000)
        for name, each in seconds.items()
    }


def _lines(
    stage: Stage, name: str, requests: Callable[[], Requests], rounds: int, *, block: int
) -> list[Line]:
    _taken(stage, requests(), block=block)
    taken = [_taken(stage, requests(), block=block) for _ in range(rounds)]
    small, large = [each["small"] for each in taken], [each["large"] for each in taken]
    return [
        Line(
            part=PART,
            name=f"{name} at {LARGE:,} rows, one caller",
            unit="ms",
            ours=[each.ms for each in large],
            reference=[each.ms for each in small],
            against=f"at {SMALL:,}",
            goal=f"at most {MOST} times the time at {SMALL:,} rows",
            at_most=MOST,
        ),
        Line(
            part=PART,
            name=f"CPU of PostgreSQL, {name} at {LARGE:,} rows",
            unit="ms/request",
            ours=[each.postgres_ms for each in large],
            reference=[each.postgres_ms for each in small],
            against=f"at {SMALL:,}",
            goal="",
        ),
    ]


def _nights(sides: dict[str, Side], rounds: int) -> list[Line]:
    lines = []
    for job in nights.JOBS:
        turns = {name: partial(job.taken, side.database) for name, side in sides.items()}
        taken = in_turns(turns, rounds=max(rounds, NIGHTS))
        lines += [
            _line_of_nights(
                f"{job.name}, {job.removes}",
                "s",
                {name: [each.seconds for each in side] for name, side in taken.items()},
                "as long",
                most=MOST_OF_A_NIGHT if job.is_bounded else None,
            ),
            _line_of_nights(
                f"{job.name}, what it looks at",
                "pages",
                {name: [float(each.pages) for each in side] for name, side in taken.items()},
                "as many",
                most=MOST_PAGES_OF_A_NIGHT if job.is_bounded else None,
            ),
        ]
    return lines


def _line_of_nights(
    name: str, unit: str, figures: dict[str, list[float]], as_much: str, *, most: float | None
) -> Line:
    beside = f"beside {LARGE // SMALL:,} times as many rows"
    return Line(
        part=PART,
        name=name,
        unit=unit,
        ours=figures["large"],
        reference=figures["small"],
        against=f"at {SMALL:,}",
        goal="" if most is None else f"at most {most:g} times {as_much} {beside}",
        at_most=most,
    )


def _console(sides: dict[str, Side], rounds: int) -> list[Line]:
    consoles = {name: Console(side) for name, side in sides.items()}
    lines, slowest = [], [0.0] * rounds
    for name, page in PAGES.items():
        turns = {each: partial(console.ms, page) for each, console in consoles.items()}
        for turn in turns.values():
            turn()
        taken = in_turns(turns, rounds=rounds)
        slowest = [max(pair) for pair in zip(slowest, taken["large"], strict=True)]
        note = f"{median(taken['small']):.0f} ms at {SMALL:,} rows"
        lines.append(
            Line(
                part=PART,
                name=f"console: {name}",
                unit="ms",
                ours=taken["large"],
                goal="",
                note=note,
            )
        )
    judged = Line(
        part=PART,
        name=f"console at {LARGE:,} rows, the slowest of {len(PAGES)} pages",
        unit="ms",
        ours=slowest,
        goal=f"well under a second: at most {MOST_OF_A_PAGE:.0f} ms",
        at_most=MOST_OF_A_PAGE,
    )
    return [judged, *lines]
