"""Floods: one of sign-ins slows down signing in and nothing else, one of telemetry those who send it.

Memory stays bounded.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection
from json import loads
from pathlib import Path
from statistics import quantiles
from typing import Any
from uuid import uuid4

import pytest

from tests.served.conftest import SignIn
from tests.served.database import Database
from tests.served.people import Person, add_person
from tests.served.service import HOST, Service
from tests.served.shell import PATIENCE, Shell
from tests.tools.folders import ROOT

# It loads the machine for a quarter of a minute, up to three times, and may be the first to need the service.
pytestmark = [pytest.mark.wire, pytest.mark.wall_time, pytest.mark.timeout(300)]

SECONDS = 8.0
ADDRESSES = 20
# One hash at a time is 19 MiB in each process; the rest is what twenty more connections and requests take.
MOST_MIB = 64
# Aimed at is twice the quiet value. A machine that has other things to do is asked again.
MOST_TIMES, TRIES = 3.0, 3
# Less than one hash takes, for which others would wait.
LITTLE_SECONDS = 0.015
CHANGES, SENDERS = 8, 8


class Probe:
    """Asks for the licence again and again, as a shell does that is signed in."""

    def __init__(self, service: Service, shell: Shell) -> None:
        self._connection = HTTPConnection(HOST, service.port, timeout=PATIENCE)
        self._headers = {"Authorization": f"Bearer {shell.access}"}

    def p95(self, *, while_: subprocess.Popen[str] | None = None) -> float:
        """In seconds, of everything asked in ``SECONDS``, or for as long as a process runs."""
        taken: list[float] = []
        end = time.monotonic() + SECONDS
        while time.monotonic() < end if while_ is None else while_.poll() is None:
            began = time.perf_counter()
            self._connection.request("GET", "/v1/license/status", headers=self._headers)
            response = self._connection.getresponse()
            response.read()
            taken.append(time.perf_counter() - began)
            assert response.status == 200
            time.sleep(0.005)
        return quantiles(taken, n=20)[-1]

    def close(self) -> None:
        self._connection.close()


def memory(service: Service) -> dict[int, float]:
    """The most that each web process has held so far, in MiB."""
    peaks = {}
    for process in service.workers():
        status = Path(f"/proc/{process}/status").read_text()
        (peak,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
        peaks[process] = int(peak) / 1024
    return peaks


def test_a_flood_of_sign_ins_slows_down_nothing_else(
    service: Service, person: Person, sign_in: SignIn, capsys: pytest.CaptureFixture[str]
) -> None:
    # Both processes have hashed before, so what is measured is the flood.
    shells = [sign_in(service, person) for _ in range(8)]
    probe, before = Probe(service, shells[0]), memory(service)
    is_slow = True
    for _ in range(TRIES):
        quiet = probe.p95()
        flooded, told = probe_while_flooded(probe, service)
        times = flooded / quiet
        with capsys.disabled():
            print(
                f"\nlicence status p95: {quiet * 1000:.1f} ms quiet, {flooded * 1000:.1f} ms flooded"
                f" (x{times:.1f}); answers {told['statuses']}"
            )
        assert set(told["statuses"]) <= {"401", "503"}
        assert told["statuses"]["401"] > 0
        assert told["silent"] == 0
        is_slow = times > MOST_TIMES and flooded > LITTLE_SECONDS
        if not is_slow:
            break
    probe.close()
    after = memory(service)
    grown = max(after[process] - before[process] for process in before)
    assert after.keys() == before.keys()
    assert grown < MOST_MIB
    assert not is_slow


def probe_while_flooded(probe: Probe, service: Service) -> tuple[float, dict[str, Any]]:
    """The p95 beside a flood, and what the flood was answered."""
    with flooding(service, str(ADDRESSES)) as flood:
        flooded = probe.p95(while_=flood)
        return flooded, told_by(flood)


@contextmanager
def flooding(service: Service, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.served.flooding", str(service.port), str(SECONDS)]
    command += arguments
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as flood:
        yield flood
    assert flood.returncode == 0


def told_by(flood: subprocess.Popen[str]) -> dict[str, Any]:
    """Counts the answers to a flood, once it is over."""
    assert flood.stdout is not None
    told: dict[str, Any] = loads(flood.stdout.read())
    return told


def test_crafted_telemetry_holds_up_nobody_else(
    service: Service,
    database: Database,
    person: Person,
    sign_in: SignIn,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sender = sign_in(service, person).access
    others = [add_person(database) for _ in range(CHANGES)]
    ordinary = sign_in(service, add_person(database))
    for _ in range(TRIES):
        quiet = slowest_change(service, others, sign_in)
        with flooding(service, str(SENDERS), sender) as flood, ThreadPoolExecutor(1) as beside:
            # Each process has some to check by then.
            time.sleep(1)
            batches = beside.submit(answers_to_batches, ordinary, flood)
            flooded = slowest_change(service, others, sign_in)
            told, taken = told_by(flood), batches.result()
        with capsys.disabled():
            print(
                f"\nnew password: {quiet:.2f} s quiet, {flooded:.2f} s flooded; answers {told};"
                f" others' telemetry {taken}"
            )
        assert taken.keys() == {(202, 100)}
        assert set(told["statuses"]) <= {"202", "503"}
        assert told["statuses"]["202"] > 0
        if flooded <= 1:
            break
    # A second on this machine alone, and on one that has other things to do as much longer as it takes without a flood.
    assert flooded <= max(1, 10 * quiet)


def slowest_change(service: Service, people: list[Person], sign_in: SignIn) -> float:
    """In seconds, of one change of each person's password after another; none is refused."""
    taken = []
    for each in people:
        shell = sign_in(service, each)
        began = time.perf_counter()
        given = {"current": each.password, "new": each.password}
        response = shell.post("/v1/auth/password/change", given)
        taken.append(time.perf_counter() - began)
        assert response.status_code == 204, response.text
    return max(taken)


def answers_to_batches(shell: Shell, flood: subprocess.Popen[str]) -> Counter[tuple[int, object]]:
    """To one ordinary batch of 100 KB after another beside a flood: status, and events accepted of a hundred."""
    answers: Counter[tuple[int, object]] = Counter()
    while flood.poll() is None:
        at = datetime.now(UTC).isoformat()
        event = {"name": "saved", "occurred_at": at, "properties": {"about": "A report. " * 90}}
        batch = {"events": [{**event, "id": str(uuid4())} for _ in range(100)]}
        answer = shell.post("/v1/telemetry", batch)
        answers[answer.status_code, answer.json().get("accepted")] += 1
        time.sleep(0.1)
    return answers
