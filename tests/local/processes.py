"""Shared parts of process tests: waiting with a deadline, and checks that a process lives."""

import time
from collections.abc import Callable
from pathlib import Path


def until(true: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Returns once it is true; fails if it is not by then."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Returns whether the process runs; one that has ended and was not collected yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}
