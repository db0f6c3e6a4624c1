"""Parts of the suite, each a process beside the others on the same servers."""

import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psycopg

from tests.tools.children import die_with
from tests.tools.folders import ROOT
from tests.tools.variables import for_tests

# More than the longest part takes on a machine with other work.
LONGEST_SECONDS = 3600
ENDING_SECONDS = 60


class Run(NamedTuple):
    """A check or a part of the suite, and what runs it and returns whether it was well."""

    name: str
    passes: Callable[[], bool]


def environ_of(number: int, folder: Path) -> dict[str, str]:
    """The environment of a part: what others must not touch is its own."""
    folder.mkdir()
    server, name = os.environ["DATABASE_URL"], f"part_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return {
        **os.environ,
        **for_tests(folder),
        "DATABASE_URL": urlsplit(server)._replace(path=f"/{name}").geturl(),
        "CACHE_URL": os.environ["CACHE_URL"].replace("db=0", f"db={number}"),
    }


def passes(
    name: str, command: list[str], environ: Mapping[str, str], *, has_report: bool = False
) -> bool:
    """Runs one check or part, and prints its time; its output if it failed or is a report."""
    parent = os.getpid()
    started = time.monotonic()
    # A file, not a pipe: the end of a pipe never comes while some process that was left behind holds it.
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=environ,
            preexec_fn=lambda: die_with(parent, signal.SIGTERM),  # noqa: PLW1509 - only two system calls
        )
        ending = _ending(process)
        output.seek(0)
        shown = output.read() if has_report or ending else ""
    print(f"{shown}{time.monotonic() - started:5.1f} s  {name}{ending}", flush=True)
    return not ending


def _ending(process: subprocess.Popen[bytes]) -> str:
    """Returns the addition to the name of a part that has not passed; ends one that hangs."""
    try:
        return ": FAILED" if process.wait(LONGEST_SECONDS) else ""
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        process.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return f": FAILED, ended after {LONGEST_SECONDS} s"
