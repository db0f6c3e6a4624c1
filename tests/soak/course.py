"""The course of a soak: a service of its own, traffic of every surface, and a fault in every eighth of the time."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.stage import Stage, stage, start_worker
from tests.faults.traffic import Seen, Traffic, flowing
from tests.served.database import Unblock
from tests.served.service import running_service
from tests.soak.looks import Looks, looking

FAULTS_IN_ALL = 8
# Redis is away for this long, and so are the provider's resets.
AWAY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Soaked:
    """The observations of a soak; ``began`` is by the clock of ``seen``."""

    looks: Looks
    seen: list[Seen]
    began: float
    seconds: float
    # Of the whole machine, at each fault: what else it had to do.
    loads: list[float]


def soak(folder: Path, unblock: Unblock, *, seconds: float) -> Soaked:
    greenlets = folder / "greenlets"
    greenlets.mkdir()
    with stage(folder, unblock) as made:
        environ = {**made.environ, "GREENLETS": str(greenlets), "NIGHTLY_AT": ""}
        # One worker for one service: that of the stage is not needed.
        made.worker.stop()
        with running_service(folder, environ, serving="tests.soak.counting_serving") as service:
            made.service, made.worker = service, start_worker(service)
            masters = {"web": service.child.pid, "worker": made.worker.pid}
            database = (made.postgres.url, made.database.name)
            looks = Looks(masters, greenlets, database)
            traffic = Traffic(made)
            began = time.monotonic()
            with flowing(traffic), looking(looks):
                loads = _pass(made, traffic, began, seconds)
            made.worker.stop()
    return Soaked(looks=looks, seen=traffic.seen, began=began, seconds=seconds, loads=loads)


def _pass(made: Stage, traffic: Traffic, began: float, seconds: float) -> list[float]:
    """Breaks something now and then until the time is over; the machine's load at each fault."""
    loads = []
    every = seconds / FAULTS_IN_ALL
    for number in range(1, FAULTS_IN_ALL):
        time.sleep(max(0.0, began + number * every - time.monotonic()))
        name, fault = FAULTS[(number - 1) % len(FAULTS)]
        print(f"{time.monotonic() - began:.0f} s: {name}", flush=True)
        loads.append(os.getloadavg()[0])
        fault(made)
        # Tokens are good for an hour.
        traffic.sign_in()
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    return loads


def _redis_restarts(made: Stage) -> None:
    made.redis.kill()
    time.sleep(AWAY_SECONDS)
    made.redis.start()


def _provider_resets(made: Stage) -> None:
    cable = made.cables["provider"]
    cable.resets = True
    time.sleep(AWAY_SECONDS)
    cable.resets = False


def _sessions_end(made: Stage) -> None:
    made.terminate_sessions()


def _a_worker_is_recycled(made: Stage) -> None:
    """Always the youngest: another is looked at from the beginning to the end."""
    os.kill(made.service.workers()[-1], signal.SIGTERM)


Fault = Callable[[Stage], None]
FAULTS: tuple[tuple[str, Fault], ...] = (
    ("Redis restarts", _redis_restarts),
    ("a web worker is recycled", _a_worker_is_recycled),
    ("the provider resets", _provider_resets),
    ("PostgreSQL ends all sessions", _sessions_end),
)
