"""The time from the start of the service to its first answer, and the memory of its processes while they are idle."""

import time

from tests.bench.figures import Line
from tests.bench.processes import pss_mib
from tests.bench.stage import WORKERS, Served, Stage
from tests.tools.stops import pause

PART = "startup"
# As on any host but those that forbid it: what was compiled at the first start is there at the next.
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}


def measure(stage: Stage, *, rounds: int) -> list[Line]:
    _start(stage)
    starts = [_start(stage) for _ in range(rounds)]
    return [
        Line(
            part=PART,
            goal="under 3 s",
            name="from the start of gunicorn to the first answer",
            unit="s",
            ours=[seconds for seconds, _ in starts],
            at_most=3.0,
        ),
        Line(
            part=PART,
            goal="at most 220 MiB",
            name=f"{WORKERS} idle workers and their master (PSS)",
            unit="MiB",
            ours=[memory for _, memory in starts],
            at_most=220.0,
        ),
    ]


def _start(stage: Stage) -> tuple[float, float]:
    began = time.monotonic()
    # It is ready once something has been answered.
    with stage.service(**COMPILED) as served:
        seconds = time.monotonic() - began
        _let_rest(served)
        return seconds, sum(map(pss_mib, served.pids))


def _let_rest(served: Served) -> None:
    """Returns once all workers are there and compute nothing any more."""
    deadline, before = time.monotonic() + 30, -1.0
    while len(served.workers) < WORKERS or served.cpu != before:
        assert time.monotonic() < deadline, f"never idle; see {served.log}"
        before = served.cpu
        pause(0.3)
