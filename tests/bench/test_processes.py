"""CPU and memory of processes, measured on ones whose doings are known."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench.processes import cpu_seconds, pss_mib, rss_mib, tree
from tests.waiting import eventually

# Starts a child that computes for 0.3 seconds and outlives it, or not; then waits for a line.
PARENT = """
import subprocess, sys
busy = "import time\\nwhile time.process_time() < 0.3: pass\\n"
child = subprocess.Popen([sys.executable, "-c", busy + ("input()" if sys.argv[1] == "stays" else "")],
                         stdin=subprocess.PIPE)
if sys.argv[1] == "ends": child.wait()
print(child.pid, flush=True)
input()
"""


@contextmanager
def parent(how: str) -> Iterator[tuple[int, int]]:
    """The numbers of a process and of its child, which stays or has ended."""
    command = [sys.executable, "-c", PARENT, how]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


def test_a_tree_is_a_process_and_all_beneath_it() -> None:
    with parent("stays") as (pid, child):
        assert tree(pid) == [pid, child]


def test_a_process_that_is_gone_has_no_tree_and_computes_nothing() -> None:
    with parent("ends") as (_, child):
        assert tree(child) == []
        assert cpu_seconds([child]) == 0.0


def test_the_time_of_a_child_is_counted_while_it_lives() -> None:
    with parent("stays") as (pid, child):
        eventually(lambda: cpu_seconds([child]) >= 0.25)
        assert cpu_seconds(tree(pid)) >= 0.25


def test_the_time_of_a_child_is_not_lost_when_it_has_ended() -> None:
    with parent("ends") as (pid, _):
        assert cpu_seconds(tree(pid)) >= 0.25


def test_memory_with_shared_pages_divided_grows_with_ones_own_and_is_part_of_all() -> None:
    me = os.getpid()
    before = pss_mib(me)
    kept = bytearray(os.urandom(32 * 1024 * 1024))
    assert pss_mib(me) - before > 24
    assert 0 < pss_mib(me) <= rss_mib(me) + 0.1
    assert len(kept) > 0
