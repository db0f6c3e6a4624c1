"""Two workers that share streams and short calls, or have one each; and two hosts instead of one.

Both groups are two workers of the same service. Shared, each takes what comes. Apart, as a proxy would route it, one
has `/v1/llm/stream` and the other all else; the load goes to their ports itself. Beside streams that leave one worker
half of its time, and beside as many as one can hold, others ask at a pace, or as fast as they are answered.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product

from tests.bench import hosts
from tests.bench.complete import BODY, HEADERS
from tests.bench.crowd_of_streams import Seen, percentile
from tests.bench.figures import Line, in_turns
from tests.bench.probes import Probe, probed
from tests.bench.processes import cpu_seconds
from tests.bench.stage import Served, Stage
from tests.bench.streams import WARM, let_all_call, streamed

PART = "apart"
STREAMS = (200, 500)
# As long as streams begin, run and end.
SECONDS = 8.0
CALLERS = 16
STATUS_EVERY, CALL_EVERY = 0.01, 0.04
Figures = dict[str, float]
Beside = Callable[[Served], Figures]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Who takes streams, and who takes short calls; the same one where they share."""

    streams: Served
    short: Served


def measure(stage: Stage, *, rounds: int) -> list[Line]:
    return [*_groups(stage, rounds), *hosts.measure(stage, rounds=rounds)]


def _groups(stage: Stage, rounds: int) -> list[Line]:
    tokens = [each.access for each in stage.callers(max(STREAMS))]
    [one] = (each.access for each in stage.callers(1))
    with (
        stage.service(workers=2) as both,
        stage.service(workers=1) as streams,
        stage.service(workers=1) as short,
    ):
        let_all_call(stage, both, [*tokens, one])
        groups = {
            "shared": Group(streams=both, short=both),
            "apart": Group(streams=streams, short=short),
        }
        for group in groups.values():
            streamed(group.streams, tokens, streams=WARM)
            _status_quickly(stage, tokens, group.short, seconds=1)
        lines: list[Line] = []
        for streams_at_once, (what, beside) in product(STREAMS, _besides(stage, tokens, one)):
            ways = {
                name: partial(_run, group, tokens[:streams_at_once], beside)
                for name, group in groups.items()
            }
            lines += _lines(f"{streams_at_once} streams and {what}", in_turns(ways, rounds=rounds))
    return lines


def _besides(stage: Stage, tokens: list[str], one: str) -> list[tuple[str, Beside]]:
    """What is asked while streams run, with what it is called."""
    paced = f"{1 / STATUS_EVERY:.0f} status and {1 / CALL_EVERY:.0f} calls a second"
    return [
        (paced, partial(_paced, one)),
        (f"status by {CALLERS} callers", partial(_status_quickly, stage, tokens)),
        (f"one-shot calls by {CALLERS} callers", partial(_calls_quickly, stage, tokens)),
    ]


def _run(group: Group, tokens: list[str], beside: Beside) -> Figures:
    before, began = cpu_seconds(group.streams.workers), time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(streamed, group.streams, tokens, streams=len(tokens))
        figures = beside(group.short)
        seen: Seen = running.result()
    assert not seen.failures, seen.failures
    spent = (cpu_seconds(group.streams.workers) - before) / (time.monotonic() - began)
    return figures | {
        "first byte of a stream p99, ms": seen.first_p99,
        "chunk delay p99, ms": seen.delay_p99,
        "those who stream were busy, of a core each": spent / len(group.streams.workers),
    }


def _paced(token: str, served: Served) -> Figures:
    status = Probe(token=token, every=STATUS_EVERY, seconds=SECONDS)
    call = Probe(
        token=token,
        method="POST",
        path="/v1/llm/complete",
        body=BODY,
        every=CALL_EVERY,
        seconds=SECONDS,
    )
    with ThreadPoolExecutor(2) as pool:
        took = list(pool.map(partial(probed, served.port), (status, call)))
    return {
        "license/status p99, ms": percentile(took[0], 0.99),
        "one-shot call p99, ms": percentile(took[1], 0.99),
    }


def _status_quickly(
    stage: Stage, tokens: list[str], served: Served, seconds: float = SECONDS
) -> Figures:
    path = "/v1/license/status"
    load = stage.load(served, path, callers=CALLERS, seconds=seconds, tokens=tokens)
    assert load.failed == 0, f"{load.failed} of {load.requests} failed; see {served.log}"
    return {"license/status, requests/s": load.rps, "license/status p99, ms": load.p99}


def _calls_quickly(stage: Stage, tokens: list[str], served: Served) -> Figures:
    load = stage.load(
        served,
        "/v1/llm/complete",
        callers=CALLERS,
        seconds=SECONDS,
        method="POST",
        body=BODY,
        headers=HEADERS,
        tokens=tokens,
    )
    assert load.failed == 0, f"{load.failed} of {load.requests} failed; see {served.log}"
    return {"one-shot calls, requests/s": load.rps, "one-shot call p99, ms": load.p99}


def _lines(what: str, runs: dict[str, list[Figures]]) -> list[Line]:
    def line(named: str) -> Line:
        name, _, unit = named.rpartition(", ")
        return Line(
            part=PART,
            goal="",
            name=f"{name}, beside {what}",
            unit=unit,
            ours=[each[named] for each in runs["apart"]],
            reference=[each[named] for each in runs["shared"]],
            against="shared by both workers",
        )

    return [line(named) for named in runs["apart"][0]]
