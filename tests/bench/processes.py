"""Resources of processes: seconds of CPU and memory, as the kernel counts them."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1024 * 1024


def tree(pid: int) -> list[int]:
    """A process and all its descendants that live; empty once it is gone."""
    return list(_walk(pid))


def cpu_seconds(pids: Iterable[int]) -> float:
    """Seconds that these have computed, in user space and in the kernel, with those of children they have outlived.

    Given a whole ``tree()``, nothing is lost when one of its processes ends and is waited for.
    """
    return sum(_cpu_ticks(pid) for pid in pids) / TICKS


def rss_mib(pid: int) -> float:
    """MiB of a process' memory that are in RAM; what several processes share counts in full for each."""
    return _rollup(pid, "Rss") / 1024


def pss_mib(pid: int) -> float:
    """The same with shared pages divided by the number of processes that share them, so that sums are true."""
    return _rollup(pid, "Pss") / 1024


def _walk(pid: int) -> Iterator[int]:
    try:
        tasks = list((PROC / str(pid) / "task").iterdir())
        children = [(task / "children").read_text() for task in tasks]
    except (FileNotFoundError, ProcessLookupError):
        return
    yield pid
    for each in " ".join(children).split():
        yield from _walk(int(each))


def _cpu_ticks(pid: int) -> int:
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # The name may hold spaces and brackets; fields count from behind it: utime, stime, cutime, cstime.
    return sum(map(int, stat.rpartition(")")[2].split()[11:15]))


def _rollup(pid: int, name: str) -> int:
    """KiB."""
    for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)
