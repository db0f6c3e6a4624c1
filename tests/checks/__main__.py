"""`make test` in one place: every check, then every test. ``python -m tests.checks [full|wire]`` beside servers.

All of them run, also after one has failed; the exit code is 0 if all succeeded. The parts share the servers: each
has a database, a number in Redis, secrets and a folder of its own.
"""

import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.checks.parts import environ_of, passes
from tests.tools.install import LOCKS, written
from tests.tools.kept import cache
from tests.tools.wire import PATH

BIN = Path(sys.executable).parent
MANAGE = [sys.executable, "manage.py"]
APPS = ["accounts", "licensing", "usage", "llmproxy", "releases", "telemetry"]

ADVISORIES = "known weaknesses of packages"

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
        "config",
        *APPS,
    ],
    "deployment": [*MANAGE, "check", "--deploy", "--fail-level", "WARNING"],
    "unsafe calls": [str(BIN / "bandit"), "-q", "-c", "pyproject.toml", "-r", "config", *APPS],
    "committed secrets": [sys.executable, "-m", "tests.supply.secret_scan"],
    "bill of materials": [sys.executable, "-m", "tests.supply.bill"],
    ADVISORIES: [sys.executable, "-m", "tests.supply.advisories"],
    "API schema": [*MANAGE, "spectacular", "--validate", "--fail-on-warn", "--file", os.devnull],
}

PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--durations=15", "-m"]
SERVICE = "tests/served"
FAULTS = tuple(
    f"{SERVICE}/test_{name}.py"
    for name in ("canaries", "connections", "corpus", "crowds", "database_away", "frozen", "kill")
)
CONSOLE = ("tests/console",)
PEOPLE = ("tests/accounts", "tests/composition")
PLUMBING = ("tests/local", "tests/standins", "tests/config", "tests/platform")
PROXY = ("tests/llmproxy",)
NAMED = (SERVICE, *CONSOLE, *PEOPLE, *PLUMBING, *PROXY)
# The longest comes first. Much of their time is waiting.
PARTS = {
    "the running service": (SERVICE, *(f"--ignore={path}" for path in FAULTS)),
    "the model proxy": PROXY,
    "everything else": ("tests", *(f"--ignore={folder}" for folder in NAMED)),
    "plumbing and tools": PLUMBING,
    "people": PEOPLE,
    "the console": CONSOLE,
    "the running service under faults": FAULTS,
}
# These measure times, so nothing runs beside them.
TIMES = {"times": ("tests",)}
TIMED = "wall_time"
LONG_PARTS = {
    "the running service, long": (SERVICE,),
    "plumbing, tools and the console, long": (*PLUMBING, *CONSOLE),
    "everything else, long": (
        "tests",
        *(f"--ignore={folder}" for folder in (SERVICE, *PLUMBING, *CONSOLE)),
    ),
}
WIRE_PARTS = {
    "programs and the running service": (SERVICE, *(f"--ignore={path}" for path in FAULTS)),
    "programs and everything else": ("tests", f"--ignore={SERVICE}"),
    "the running service under longer faults": FAULTS,
}
SIDE_BY_SIDE = 4
# Browsers and compilers work more and wait less.
WIRE_SIDE_BY_SIDE = 2


def main(arguments: list[str]) -> int:
    """0 if all was well, else 1."""
    checks, parts, marked, side_by_side = CHECKS, PARTS, "not full and not wire", SIDE_BY_SIDE
    if arguments == ["wire"]:
        os.environ["PATH"] = PATH
        checks, parts, marked, side_by_side = {}, WIRE_PARTS, "wire", WIRE_SIDE_BY_SIDE
    elif arguments == ["full"]:
        checks, parts, marked = {}, LONG_PARTS, "full and not wire"
    failed = _failed(checks, parts, marked=f"{marked} and not {TIMED}", side_by_side=side_by_side)
    failed += _failed({}, TIMES, marked=f"{marked} and {TIMED}", side_by_side=1)
    print(
        f"FAILED: {', '.join(failed)}" if failed else "All checks and tests are well.", flush=True
    )
    return 1 if failed else 0


def _failed(
    checks: Mapping[str, list[str]],
    parts: Mapping[str, tuple[str, ...]],
    *,
    marked: str,
    side_by_side: int,
) -> list[str]:
    """Runs checks and parts side by side; the names of those that failed."""
    common = {**os.environ, "MYPY_CACHE_DIR": str(_types_cache())}
    with ThreadPoolExecutor(side_by_side) as pool, tempfile.TemporaryDirectory() as folder:
        # The longest first, because they run side by side.
        runs = {}
        for number, (name, selected) in enumerate(parts.items(), 1):
            environ = environ_of(number, Path(folder) / str(number))
            command = [*PYTEST, marked, *selected]
            runs[f"tests: {name}"] = pool.submit(passes, name, command, environ, has_report=True)
        for name, command in checks.items():
            has_report = name == ADVISORIES
            runs[name] = pool.submit(passes, name, command, common, has_report=has_report)
        return [name for name, run in runs.items() if not run.result()]


def _types_cache() -> Path:
    """mypy's, for these packages: what it has learned of them is most of its work."""
    digest = hashlib.sha256(written(LOCKS["test"]).encode()).hexdigest()
    return cache() / f"mypy-{digest[:16]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
