"""A flood of sign-ins from twenty addresses: it slows down signing in and nothing else, and memory stays bounded."""

import subprocess
import sys
import time
from http.client import HTTPConnection
from json import loads
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from tests.served.conftest import SignIn
from tests.served.people import Person
from tests.served.service import HOST, Service
from tests.served.shell import PATIENCE, Shell
from tests.tools.folders import ROOT

# It loads the machine for a quarter of a minute, up to three times, and may be the first to need the service.
pytestmark = [pytest.mark.wire, pytest.mark.timeout(300)]

SECONDS = 8.0
ADDRESSES = 20
# One hash at a time is 19 MiB in each process; the rest is what twenty more connections and requests take.
MOST_MIB = 64
# Aimed at is twice the quiet value. A machine that has other things to do is asked again.
MOST_TIMES, TRIES = 3.0, 3


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
    times = 0.0
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
        if times <= MOST_TIMES:
            break
    probe.close()
    after = memory(service)
    grown = max(after[process] - before[process] for process in before)
    assert after.keys() == before.keys()
    assert grown < MOST_MIB
    assert times <= MOST_TIMES


def probe_while_flooded(probe: Probe, service: Service) -> tuple[float, dict[str, Any]]:
    """The p95 beside a flood, and what the flood was answered."""
    command = [sys.executable, "-m", "tests.served.flooding", str(service.port)]
    command += [str(SECONDS), str(ADDRESSES)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as flood:
        flooded = probe.p95(while_=flood)
        assert flood.stdout is not None
        told = loads(flood.stdout.read())
    assert flood.returncode == 0
    return flooded, told
