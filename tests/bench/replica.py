"""Effects of long queries of a million records on callers, on the primary and on a read replica.

A look is a report over the whole ledger and then all of it as text, one after the other without a pause. Primary and
replica share the machine's cores, so once more they are held to a core each, as if they were hosts: on the first the
primary with the service before it, on the second the replica. How far the replica is behind is what the primary says.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from pathlib import Path
from threading import Event, Thread

from tests.bench.callers import Caller, make_callers
from tests.bench.complete import BODY, HEADERS
from tests.bench.crowd_of_streams import percentile
from tests.bench.figures import Line, in_turns
from tests.bench.grown import prepare
from tests.bench.probes import Probe, probed
from tests.bench.processes import cpu_seconds, tree
from tests.bench.stage import Served, Stage
from tests.bench.standby import Standby, lagging, standby
from tests.served.database import Database, new_database
from tests.tools.folders import ROOT
from tests.tools.postgres import psql

PART = "replica"
RECORDS = int(os.environ.get("ROWS", "1000000"))
PEOPLE, CALLERS = 64, 64
SECONDS = 8.0
STATUS_EVERY, CALL_EVERY = 0.01, 0.04
PACE = f"{1 / STATUS_EVERY:.0f} status and {1 / CALL_EVERY:.0f} calls"
REPORT = """
SELECT client_id, model, day, count(*), sum(input_tokens), sum(output_tokens),
    percentile_cont(0.95) WITHIN GROUP (ORDER BY settled_at - opened_at)
FROM usage_usagerecord GROUP BY client_id, model, day
"""
EXPORT = "COPY (SELECT * FROM usage_usagerecord ORDER BY opened_at) TO STDOUT"
QUIET, PRIMARY, REPLICA = "nobody looks", "looks on the primary", "looks on the replica"
# It says what its queries still need to see, so that the primary keeps that and replaying does not wait for them.
FEEDBACK = "looks on the replica with hot_standby_feedback"
Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A service on a grown database, and the replica of that."""

    stage: Stage
    database: Database
    served: Served
    replica: Standby
    people: list[Caller]

    def url(self, where: str) -> str:
        return self.database.url if where == PRIMARY else self.replica.url(self.database.url)


def measure(stage: Stage, *, rounds: int) -> list[Line]:
    with new_database(nullcontext) as database:
        _grow(stage, database)
        people = make_callers(database, PEOPLE)
        with (
            stage.service(DATABASE_URL=database.url) as served,
            standby(stage.folder, database.url) as replica,
        ):
            scene = Scene(
                stage=stage, database=database, served=served, replica=replica, people=people
            )
            _flooded(scene, QUIET, seconds=2)
            return [
                *_lines(scene, f"{PACE} a second", _paced, rounds),
                *_lines(
                    scene, f"{PACE} a second, a core for each host", _paced_on_a_core_each, rounds
                ),
                *_lines(scene, f"calls by {CALLERS} callers", _flooded, rounds, FEEDBACK),
            ]


def _grow(stage: Stage, database: Database) -> None:
    prepare(stage, database)
    numbers = {"rows": 1_000, "records": RECORDS, "people": 10_000, "clients": 500}
    subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.tools.grow",
            *(f"--{name}={n}" for name, n in numbers.items()),
        ],
        cwd=ROOT,
        env={**stage.environ, "DATABASE_URL": database.url},
        check=True,
    )


def _paced(scene: Scene, where: str) -> Figures:
    """Few enough that a quiet service has time to spare."""
    token = scene.people[0].access
    status = Probe(token=token, every=STATUS_EVERY, seconds=SECONDS)
    path = "/v1/llm/complete"
    call = Probe(
        token=token, method="POST", path=path, body=BODY, every=CALL_EVERY, seconds=SECONDS
    )
    before, began = _cpu(scene), time.monotonic()
    with _looking(scene, where) as looks, ThreadPoolExecutor(2) as pool:
        took = list(pool.map(partial(probed, scene.served.port), (status, call)))
        spent = (_cpu(scene) - before) / (time.monotonic() - began)
    return {
        "license/status p99, ms": percentile(took[0], 0.99),
        "one-shot call p99, ms": percentile(took[1], 0.99),
        "PostgreSQL of the primary was busy, of a core": spent,
        **_told(looks),
    }


def _paced_on_a_core_each(scene: Scene, where: str) -> Figures:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    ours = [scene.stage.postgres.pid, scene.served.child.pid, scene.stage.provider.child.pid]
    with _held_to(first, ours), _held_to(second, [scene.replica.child.pid]):
        return _paced(scene, where)


def _flooded(scene: Scene, where: str, seconds: float = SECONDS) -> Figures:
    # Delays of an earlier look do not count for this one.
    scene.replica.catch_up(scene.database.url)
    with _looking(scene, where) as looks, lagging(scene.database.url) as lag:
        load = scene.stage.load(
            scene.served,
            "/v1/llm/complete",
            callers=CALLERS,
            seconds=seconds,
            method="POST",
            body=BODY,
            headers=HEADERS,
            tokens=[each.access for each in scene.people],
        )
    assert load.failed == 0, f"{load.failed} of {load.requests} failed; see {scene.served.log}"
    return {
        "one-shot calls, requests/s": load.rps,
        "one-shot call p99, ms": load.p99,
        "the replica is behind p50, ms": percentile(lag.ms, 0.5) / 1000,
        "the replica is behind p99, ms": percentile(lag.ms, 0.99) / 1000,
        "the replica has still to replay p99, KiB": percentile(lag.bytes, 0.99) / 1000 / 1024,
        **_told(looks),
    }


@contextmanager
def _looking(scene: Scene, where: str) -> Iterator[list[float]]:
    """One look after the other for as long; how many seconds each took that came to its end."""
    took: list[float] = []
    if where == QUIET:
        yield took
        return
    scene.replica.tell_primary(where == FEEDBACK)
    over = Event()
    thread = Thread(target=_look, args=(scene.url(where), over, took))
    thread.start()
    try:
        yield took
    finally:
        over.set()
        thread.join()


def _look(url: str, over: Event, took: list[float]) -> None:
    """By a process of its own: what reads so much would keep this one from asking in time."""
    command = [psql(), url, "-q", "-o", os.devnull, "-c", REPORT, "-c", EXPORT]
    while not over.is_set():
        began = time.monotonic()
        with subprocess.Popen(command, stderr=subprocess.PIPE) as look:
            while look.poll() is None and not over.wait(0.02):
                pass
            # It asks the server to stop as well.
            look.send_signal(signal.SIGINT)
            look.communicate()
        if not over.is_set():
            assert look.returncode == 0, "a look was broken off"
            took.append(time.monotonic() - began)


def _told(looks: Sequence[float]) -> Figures:
    return {"a look takes, s": sum(looks) / len(looks)} if looks else {}


def _cpu(scene: Scene) -> float:
    return cpu_seconds(tree(scene.stage.postgres.pid))


@contextmanager
def _held_to(core: int, pids: Sequence[int]) -> Iterator[None]:
    """These, their children, and whatever they start meanwhile."""
    before = os.sched_getaffinity(0)
    _allow(pids, {core})
    try:
        yield
    finally:
        _allow(pids, before)


def _allow(pids: Sequence[int], cores: set[int]) -> None:
    for pid in chain.from_iterable(map(tree, pids)):
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def _lines(
    scene: Scene, what: str, way: Callable[[Scene, str], Figures], rounds: int, *more: str
) -> list[Line]:
    places = (QUIET, PRIMARY, REPLICA, *more)
    found = in_turns({where: partial(way, scene, where) for where in places}, rounds=rounds)

    def line(where: str, named: str) -> Line:
        name, _, unit = named.rpartition(", ")
        quiet = [each.get(named) for each in found[QUIET]]
        return Line(
            part=PART,
            goal="",
            name=f"{name}, {where}, {what}",
            unit=unit,
            ours=[each[named] for each in found[where]],
            reference=[each for each in quiet if each is not None] or None,
            against=QUIET,
        )

    return [
        line(where, named)
        for named, where in product(found[PRIMARY][0], places[1:])
        if all(named in each for each in found[where])
    ]
