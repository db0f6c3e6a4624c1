"""What a killed run may have left: processes that are still ending, found by what they are and never by number.

A process belongs to a folder if it is one of the servers at work in that folder, or carries the folder's mark in the
environment it was started with.
"""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.tools import Unready
from tests.tools.stops import pause

MARK = "SHELL_LOCAL_FOLDER"
# The servers overwrite the memory that shows their environment, and work in their data folder.
SERVERS = {"postgres", "redis-server"}


def marked(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment with the folder's mark."""
    return {**environ, MARK: str(folder)}


def end_leftovers(folder: Path, *, patience: float = 10.0) -> None:
    """Returns once nothing of an earlier run is alive: waits some seconds for what is ending, then kills it."""
    deadline = time.monotonic() + patience
    while left := processes_of(folder):
        if time.monotonic() > deadline + 10.0:
            raise Unready(
                f"An earlier run left processes that do not end: {', '.join(map(str, left))}."
            )
        if time.monotonic() > deadline:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        pause(0.05)


def processes_of(folder: Path) -> list[int]:
    """The numbers of all living processes that belong to the folder."""
    return [
        int(each.name)
        for each in Path("/proc").iterdir()
        if each.name.isdigit() and _belongs(each, folder)
    ]


def _belongs(process: Path, folder: Path) -> bool:
    mark = f"{MARK}={folder}".encode()
    # Another user's process, or one that has just ended, shows nothing.
    with suppress(OSError):
        if mark in (process / "environ").read_bytes().split(b"\0"):
            return int(process.name) != os.getpid()
        program = (process / "exe").readlink().name.removesuffix(" (deleted)")
        return program in SERVERS and (process / "cwd").readlink().is_relative_to(folder)
    return False
