"""Streamed model calls, a thousand at once, beside proxies with and without accounts; one person's; what others notice.

Every stream has a connection of its own and 50 chunks, one every 100 ms. They begin evenly over nearly the time that
one of them lasts, so for a moment all run at once, and beginnings and ends weigh on those that are under way.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread

import psycopg

from tests.bench.burst import TIMES, Burst, burst, frozen
from tests.bench.complete import BODY as ONE_SHOT
from tests.bench.crowd_of_streams import Crowd, Seen, percentile, read_apart
from tests.bench.figures import Line, in_turns
from tests.bench.length import usual
from tests.bench.probes import Probe, probed
from tests.bench.processes import cpu_seconds, pss_mib, rss_mib
from tests.bench.stage import HOST, WORKERS, Served, Stage

PART = "streams"
CHUNKS, EVERY = usual(50, short=5), 0.1
RAMP = usual(4.5, short=0.5)
MANY, OF_ONE = usual((1_000, 500), short=(50, 20))
PROVIDERS = "/v1/chat/completions"
WARM = 50
LOOPS = usual(6, short=1)
FROZEN_SECONDS = usual(5.0, short=1.0)
WATCHED_EVERY = 0.2
BODY = json.dumps(
    {
        "model": "stand-in-small",
        # The text of each chunk is the moment at which it was due.
        "messages": [
            {"role": "user", "content": f"[[stand-in: tokens={CHUNKS} delay={EVERY} clock=yes]]"}
        ],
        "stream": True,
        "max_tokens": 400,
    }
)
# Sessions of the service, and those that have been in a transaction for longer than any of its statements takes. Those
# of a reference bear its name.
HELD = """
SELECT count(*), count(*) FILTER (WHERE state <> 'idle' AND now() - xact_start > interval '1 s')
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND application_name <> 'ledger'
"""


@dataclass(kw_only=True)
class Meanwhile:
    """The most that was seen while streams ran. MiB of all web workers; sessions of the database."""

    pss: float = 0.0
    rss: float = 0.0
    sessions: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    seen: Seen
    # Microseconds of all web workers for each chunk.
    cpu: float
    meanwhile: Meanwhile


def measure(stage: Stage, *, rounds: int) -> list[Line]:
    tokens = [each.access for each in stage.callers(MANY)]
    [one] = (each.access for each in stage.callers(1))
    with (
        stage.service() as ours,
        stage.reference("proxy") as proxy,
        stage.reference("ledger") as ledger,
    ):
        all_three = {"ours": ours, "proxy": proxy, "ledger": ledger}
        for served in all_three.values():
            _run(stage, served, tokens, streams=WARM)
        for served in (ours, ledger):
            let_all_call(stage, served, [*tokens, one])
        many = _in_turns(stage, all_three, tokens, streams=MANY, rounds=rounds)
        of_one = _in_turns(stage, all_three, [one], streams=OF_ONE, rounds=rounds)
        alone = [
            streamed(stage.provider, tokens, streams=MANY, path=PROVIDERS) for _ in range(rounds)
        ]
        beside = _beside(stage, ours, tokens, one, rounds=rounds)
        bursts = _bursts(stage, ours, tokens, rounds=rounds)
    return [
        *_lines(f"{MANY:,} streams", many),
        *_lines(f"{OF_ONE} streams of one person", of_one),
        *beside,
        *bursts,
        _line(
            "from the provider itself, chunk delay p99", "ms", [each.delay_p99 for each in alone]
        ),
        _line("of the load itself", "µs CPU/chunk", [each.own_cpu for each in alone]),
    ]


def let_all_call(stage: Stage, served: Served, tokens: Sequence[str]) -> None:
    """Everybody has called before in this month, as nearly all have whenever they call; who has not pays for a row."""
    headers = {"Content-Type": "application/json"}
    asked = 0
    while asked < len(tokens):
        load = stage.load(
            served,
            "/v1/llm/complete",
            callers=16,
            seconds=2,
            method="POST",
            body=ONE_SHOT,
            headers=headers,
            tokens=tokens[asked:],
        )
        assert load.failed == 0, f"{load.failed} of {load.requests} calls failed; see {served.log}"
        asked += load.requests


def _in_turns(
    stage: Stage, served: dict[str, Served], tokens: Sequence[str], *, streams: int, rounds: int
) -> dict[str, list[Run]]:
    ways: dict[str, Callable[[], Run]] = {
        name: partial(_run, stage, each, tokens, streams=streams) for name, each in served.items()
    }
    return in_turns(ways, rounds=rounds)


def _run(stage: Stage, served: Served, tokens: Sequence[str], *, streams: int) -> Run:
    before = cpu_seconds(served.workers)
    with _watching(stage, served) as meanwhile:
        seen = streamed(served, tokens, streams=streams)
    spent = cpu_seconds(served.workers) - before
    return Run(seen=seen, cpu=spent * 1e6 / max(1, seen.chunks), meanwhile=meanwhile)


def streamed(
    served: Served, tokens: Sequence[str], *, streams: int, path: str = "/v1/llm/stream"
) -> Seen:
    """Reads so many streams in a process of their own, and returns their outcomes."""
    crowd = Crowd(
        host=HOST,
        port=served.port,
        path=path,
        body=BODY,
        tokens=tokens,
        streams=streams,
        chunks=CHUNKS,
        ramp=RAMP,
    )
    return read_apart(crowd)


@contextmanager
def _watching(stage: Stage, served: Served) -> Iterator[Meanwhile]:
    """Looks at memory and at the database again and again, in a thread of its own."""
    meanwhile, over, workers = Meanwhile(), Event(), served.workers

    def watch() -> None:
        with psycopg.connect(stage.database.url, autocommit=True) as database:
            while not over.wait(WATCHED_EVERY):
                sessions, held = database.execute(HELD).fetchone() or (0, 0)
                meanwhile.sessions = max(meanwhile.sessions, sessions)
                meanwhile.held = max(meanwhile.held, held)
                meanwhile.pss = max(meanwhile.pss, sum(map(pss_mib, workers)))
                meanwhile.rss = max(meanwhile.rss, sum(map(rss_mib, workers)))

    thread = Thread(target=watch)
    thread.start()
    try:
        yield meanwhile
    finally:
        over.set()
        thread.join()


def _beside(
    stage: Stage, ours: Served, tokens: Sequence[str], one: str, *, rounds: int
) -> list[Line]:
    """``license/status`` while nothing else happens, and while streams begin, run and end."""
    quiet: list[float] = []
    busy: list[float] = []
    for _ in range(rounds):
        quiet.append(_probe(ours, one))
        streams = Thread(target=streamed, args=(ours, tokens), kwargs={"streams": OF_ONE})
        streams.start()
        busy.append(_probe(ours, one))
        streams.join()
    return [
        _line(
            f"license/status p99 beside {OF_ONE} streams",
            "ms",
            busy,
            reference=quiet,
            against="without streams",
            goal="at most 3 times its quiet value",
            at_most=3.0,
        )
    ]


def _bursts(stage: Stage, ours: Served, tokens: Sequence[str], *, rounds: int) -> list[Line]:
    """A thousand streams, each twice, beside endless loops; in each round once more with a frozen database."""

    def freeze() -> None:
        with frozen(stage.postgres.pid):
            time.sleep(FROZEN_SECONDS)

    ways = {"a burst": None, f"a burst with the database frozen {FROZEN_SECONDS:.0f} s": freeze}
    found: dict[str, list[Burst]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, act in ways.items():
            seen = burst(
                port=ours.port,
                log=ours.log,
                database=stage.database,
                tokens=tokens,
                streams=MANY,
                loops=LOOPS,
                freeze=act,
            )
            found[name].append(seen)
    return [line for name, bursts in found.items() for line in _burst_lines(name, bursts)]


def _burst_lines(name: str, bursts: list[Burst]) -> Iterator[Line]:
    def line(
        what: str, unit: str, figures: list[float], goal: str = "", at_most: float | None = None
    ) -> Line:
        return _line(f"{what}, {name}", unit, figures, goal=goal, at_most=at_most)

    yield line("whole answers lost", "streams", [float(each.lost) for each in bursts], "none", 0.0)
    refused = [100 * each.refused / (TIMES * MANY) for each in bursts]
    yield line("refused", "%", refused, "under 1 %", 1.0)
    silent = [float(each.seen.unanswered) for each in bursts]
    yield line("refused without Retry-After", "streams", silent, "none", 0.0)
    ends = [each.seen.end_p99 for each in bursts]
    yield line("last text to the end p99", "ms", ends, "at most 15 s", 15_000.0)
    yield line("first byte p99", "ms", [each.seen.first_p99 for each in bursts])
    off = [float(each.off) for each in bursts]
    yield line("tokens by which the ledger is off", "tokens", off, "none", 0.0)
    left = [float(each.unraisable) for each in bursts]
    yield line("errors that nobody could raise", "errors", left, "none", 0.0)


def _probe(served: Served, token: str) -> float:
    """The p99 of calls that are due every few milliseconds, in milliseconds."""
    return percentile(probed(served.port, Probe(token=token)), 0.99)


def _lines(who: str, runs: dict[str, list[Run]]) -> list[Line]:
    ours, proxy = runs["ours"], runs["proxy"]

    def seen(
        name: str, key: str, goal: str = "", at_most: float | None = None, to: str = "proxy"
    ) -> Line:
        figures = {each: [getattr(run.seen, key) for run in runs[each]] for each in runs}
        return _line(
            f"{name}, {who}",
            "ms",
            figures["ours"],
            reference=figures[to],
            against=f"the {to}",
            goal=goal,
            at_most=at_most,
        )

    def own(name: str, unit: str, key: str, goal: str = "", at_most: float | None = None) -> Line:
        figures = [float(getattr(run.meanwhile, key)) for run in ours]
        return _line(f"{name}, {who}", unit, figures, goal=goal, at_most=at_most)

    failed = [float(sum(run.seen.failures.values())) for run in ours]
    failures = {reason for run in ours for reason in run.seen.failures}
    of_references = [
        float(sum(sum(run.seen.failures.values()) for run in (one, other)))
        for one, other in zip(proxy, runs["ledger"], strict=True)
    ]
    proxy_at_most = "at most 1.5 times the proxy's"
    return [
        _line(
            f"failures, {who}",
            "streams",
            failed,
            reference=None,
            goal="none",
            at_most=0.0,
            note=", ".join(sorted(failures)),
        ),
        _line(f"failures of the references, {who}", "streams", of_references),
        _line(f"most at once, {who}", "streams", [float(run.seen.most_at_once) for run in ours]),
        seen("first byte p50", "first_p50"),
        seen("first byte p99", "first_p99", proxy_at_most, 1.5),
        seen("chunk delay p50", "delay_p50"),
        seen("chunk delay p99", "delay_p99", proxy_at_most, 1.5),
        seen("first byte p99 beside the ledger's", "first_p99", to="ledger"),
        seen("chunk delay p99 beside the ledger's", "delay_p99", to="ledger"),
        _line(
            f"CPU of the web workers, {who}",
            "µs/chunk",
            [run.cpu for run in ours],
            goal="at most 200 µs",
            at_most=200.0,
        ),
        _line(f"CPU of the proxy's, {who}", "µs/chunk", [run.cpu for run in proxy]),
        _line(f"CPU of the ledger's, {who}", "µs/chunk", [run.cpu for run in runs["ledger"]]),
        own(f"{WORKERS} workers (PSS)", "MiB", "pss", "at most 300 MiB", 300.0),
        own(f"{WORKERS} workers (RSS)", "MiB", "rss"),
        own("database connections", "open", "sessions"),
        own("database connections held", "held", "held", "none between chunks", 0.0),
    ]


def _line(
    name: str,
    unit: str,
    ours: list[float],
    *,
    reference: list[float] | None = None,
    against: str = "",
    goal: str = "",
    at_most: float | None = None,
    note: str = "",
) -> Line:
    return Line(
        part=PART,
        name=name,
        unit=unit,
        ours=ours,
        reference=reference,
        against=against,
        goal=goal,
        at_most=at_most,
        note=note,
    )
