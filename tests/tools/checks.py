"""`make test` in one place: every check, then every test. ``python -m tests.tools.checks [wire]`` beside servers.

All of them run, also after one has failed; the exit code says whether all were well.
"""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.tools.children import die_with
from tests.tools.folders import ROOT
from tests.tools.wire import PATH

BIN = Path(sys.executable).parent
MANAGE = [sys.executable, "manage.py"]
NOTHING_COLLECTED = 5
APPS = ["accounts", "licensing", "usage", "llmproxy", "releases", "telemetry"]

# The longest first, because they run side by side.
CHECKS = {
    "types": [str(BIN / "mypy")],
    "lint": [str(BIN / "ruff"), "check", "."],
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "imports": [str(BIN / "lint-imports")],
    "dependencies": [str(BIN / "deptry"), "."],
    "templates": [str(BIN / "djlint"), "--lint", "templates"],
    "models and migrations agree": [*MANAGE, "makemigrations", "--check", "--dry-run"],
    "migrations are safe": [
        *MANAGE,
        "lintmigrations",
        "--settings",
        "tests.lint_settings",
        "--include-apps",
        *APPS,
    ],
    "deployment": [*MANAGE, "check", "--deploy", "--fail-level", "WARNING"],
    "API schema": [*MANAGE, "spectacular", "--validate", "--fail-on-warn", "--file", os.devnull],
}

PYTEST = [sys.executable, "-m", "pytest", "-m", "not wire", "--durations=15"]
# Much of what they do is waiting, so two at a time take little longer than the longer one. The second has servers of
# its own, because tests empty the tables and the cache that they were given.
RUNNING = ("tests/served", "tests/local", "tests/standins", "tests/config")
PARTS = {
    "the running service": [*PYTEST, *RUNNING],
    "everything else": [
        *(sys.executable, "-m", "tests.tools", "with", "--"),
        *(*PYTEST, "tests", *(f"--ignore={folder}" for folder in RUNNING)),
    ],
}


def main(arguments: list[str]) -> int:
    """0 if all was well, else 1."""
    if arguments == ["wire"]:
        os.environ["PATH"] = PATH
        return 0 if _pytest("-m", "wire") in {0, NOTHING_COLLECTED} else 1
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        well = list(pool.map(_check, CHECKS, CHECKS.values()))
    failed = [name for name, was_well in zip(CHECKS, well, strict=True) if not was_well]
    if not _tests():
        failed.append("tests")
    print(
        f"FAILED: {', '.join(failed)}" if failed else "All checks and tests are well.", flush=True
    )
    return 1 if failed else 0


def _check(name: str, command: list[str]) -> bool:
    """Runs one check and says how it went; what it printed only if it failed."""
    started = time.monotonic()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        check=False,
    )
    seconds = f"{time.monotonic() - started:5.1f} s"
    well = done.returncode == 0
    print(f"{seconds}  {name}" if well else f"{seconds}  {name}: FAILED\n{done.stdout}", flush=True)
    return well


def _tests() -> bool:
    """Both parts side by side; each is told whole, once it has ended."""
    with ThreadPoolExecutor(len(PARTS)) as pool:
        return all(list(pool.map(_part, PARTS, PARTS.values())))


def _part(name: str, command: list[str]) -> bool:
    parent = os.getpid()
    started = time.monotonic()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        check=False,
        preexec_fn=lambda: die_with(parent, signal.SIGINT),
    )
    print(f"{done.stdout}{time.monotonic() - started:5.0f} s  tests: {name}", flush=True)
    return done.returncode == 0


def _pytest(*arguments: str) -> int:
    parent = os.getpid()
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=ROOT,
        check=False,
        # It ends its fixtures as for Ctrl-C when this process is told to stop.
        preexec_fn=lambda: die_with(parent, signal.SIGINT),
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
