"""How long the service takes to answer after its start, and what a worker that does nothing holds in memory."""

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from statistics import mean

from tests.bench.figures import Line, in_turns
from tests.bench.processes import cpu_seconds, private_mib, pss_mib, rss_mib, tree
from tests.bench.stage import WORKERS, Served, Stage
from tests.tools.folders import ROOT
from tests.tools.stops import pause

PART = "startup"
# What is measured for orientation: a Django proxy without apps.
REFERENCE = "proxy"
# As gunicorn has it: with its configuration, and that before the application.
IMPORT = """
import time
began = time.perf_counter()
import config.gunicorn, config.wsgi
print(time.perf_counter() - began)
"""
# As on any host but those that forbid it: what was compiled at the first start is there at the next.
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
Start = dict[str, float]


def measure(stage: Stage, *, rounds: int) -> list[Line]:
    ways: dict[str, Callable[[], Start]] = {
        "ours": lambda: _start(stage, ours=True),
        "proxy": lambda: _start(stage, ours=False),
    }
    for way in ways.values():
        way()
    starts = in_turns(ways, rounds=rounds)
    imports = [_import_seconds(stage) for _ in range(rounds)]
    ours, proxy = partial(_line, starts["ours"]), partial(_line, starts["proxy"])
    beside = "a Django proxy without apps: "
    return [
        ours("from the start of gunicorn to the first answer", "seconds", "s", at_most=2.0),
        Line(
            part=PART,
            goal="",
            name="import of configuration and application alone",
            unit="s",
            ours=imports,
        ),
        ours("CPU from the start to the first answer", "cpu", "s"),
        proxy(f"{beside}to the first answer", "seconds", "s"),
        ours("an idle worker, all it has in memory (RSS)", "rss", "MiB", at_most=120.0),
        ours("an idle worker, shared pages divided (PSS)", "pss", "MiB"),
        ours("an idle worker, what is its own", "private", "MiB"),
        ours(f"{WORKERS} idle workers and their master (PSS)", "all", "MiB"),
        proxy(f"{beside}an idle worker (RSS)", "rss", "MiB"),
    ]


def _line(
    starts: list[Start], name: str, key: str, unit: str, *, at_most: float | None = None
) -> Line:
    return Line(
        part=PART,
        goal=f"at most {at_most:.0f} {unit}" if at_most else "",
        name=name,
        unit=unit,
        ours=[each[key] for each in starts],
        at_most=at_most,
    )


def _start(stage: Stage, *, ours: bool) -> Start:
    began = time.monotonic()
    # It is ready once something has been answered.
    with _served(stage, ours=ours) as served:
        seconds, cpu = time.monotonic() - began, cpu_seconds(tree(served.child.pid))
        workers = _idle(served)
        return {
            "seconds": seconds,
            "cpu": cpu,
            "rss": max(map(rss_mib, workers)),
            "pss": mean(map(pss_mib, workers)),
            "private": mean(map(private_mib, workers)),
            "all": sum(map(pss_mib, served.pids)),
        }


def _idle(served: Served) -> list[int]:
    """Its workers, once all are there and compute nothing any more."""
    deadline, before = time.monotonic() + 30, -1.0
    while len(served.workers) < WORKERS or served.cpu != before:
        assert time.monotonic() < deadline, f"never idle; see {served.log}"
        before = served.cpu
        pause(0.3)
    return served.workers


def _served(stage: Stage, *, ours: bool) -> AbstractContextManager[Served]:
    return stage.service(**COMPILED) if ours else stage.reference(REFERENCE, **COMPILED)


def _import_seconds(stage: Stage) -> float:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT],
        cwd=ROOT,
        env={**stage.environ, **COMPILED},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)
