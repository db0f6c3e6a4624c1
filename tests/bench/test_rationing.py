"""Processes that the bench holds to a share of a core keep to it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench.processes import cpu_seconds
from tests.bench.rationing import rationed

BUSY = "while True: pass"


@contextmanager
def busy() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        try:
            yield process
        finally:
            process.kill()


def share_of(pid: int) -> float:
    """Measures the share of a core that a process uses in a second."""
    began, before = time.monotonic(), cpu_seconds([pid])
    time.sleep(1)
    return (cpu_seconds([pid]) - before) / (time.monotonic() - began)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")


@pytest.mark.wall_time
def test_a_process_that_is_rationed_computes_no_more_than_its_share_and_goes_on_afterwards() -> (
    None
):
    with busy() as process:
        with rationed([process.pid], 0.2):
            # The rationing process does not always run in time on a busy machine.
            assert any(share_of(process.pid) < 0.5 for _ in range(10))

        assert not is_stopped(process.pid)


def test_a_process_that_has_ended_keeps_nobody_from_being_rationed() -> None:
    with busy() as process:
        pid = process.pid

    with rationed([pid], 0.2):
        time.sleep(0.01)
