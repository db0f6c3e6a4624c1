"""Shared parts of process tests: waiting with a deadline, and checks that a process lives."""

from pathlib import Path


def alive(pid: int) -> bool:
    """Returns whether the process runs; one that has ended and was not collected yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}
