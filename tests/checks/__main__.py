"""Runs checks and tests by kind: ``python -m tests.checks [KIND...]`` beside servers; by default those of `make test`.

The kinds are ``short``, ``full``, ``wire`` and ``pythons``. All of a kind run, also after one has failed; the exit
code is 0 if all succeeded. Parts share the servers: each has a database, a number in Redis, secrets and a folder of
its own. Tests that measure times run last, with nothing beside them.
"""

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.checks import interpreters
from tests.checks.parts import Run, environ_of, passes
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

PYTEST = [
    *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.checks.naming"),
    "--durations=15",
]
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


def _without(paths: Iterable[str]) -> list[str]:
    return [f"--ignore={path}" for path in paths]


# The longest comes first. Much of their time is waiting.
PARTS = {
    "the running service": (SERVICE, *_without(FAULTS)),
    "the model proxy": PROXY,
    "everything else": ("tests", *_without(NAMED)),
    "plumbing and tools": PLUMBING,
    "people": PEOPLE,
    "the console": CONSOLE,
    "the running service under faults": FAULTS,
}
WIRE_PARTS = {
    "programs and the running service": (SERVICE, *_without(FAULTS)),
    "programs and everything else": ("tests", *_without((SERVICE, *CONSOLE))),
    "browsers and the console": CONSOLE,
    "the running service under longer faults": FAULTS,
}
LONG_PARTS = {
    "the running service, long": (SERVICE,),
    "everything else, long": ("tests", *_without((SERVICE, *PLUMBING, *CONSOLE))),
    "plumbing, tools and the console, long": (*PLUMBING, *CONSOLE),
}
TIMED = "wall_time"


class Kind(NamedTuple):
    """Parts of the suite, the expression that selects their tests, the marker of these, and checks beside them."""

    parts: Mapping[str, tuple[str, ...]]
    expression: str
    marker: str | None = None
    checks: Mapping[str, list[str]] = MappingProxyType({})


KINDS = {
    "short": Kind(PARTS, "not full and not wire", checks=CHECKS),
    "wire": Kind(WIRE_PARTS, "wire", "wire"),
    "full": Kind(LONG_PARTS, "full and not wire", "full"),
}
SIDE_BY_SIDE = 4
# Browsers, compilers and tests without a service work more and wait less.
LONG_SIDE_BY_SIDE = 3


def main(arguments: list[str]) -> int:
    """0 if all was well, else 1; 2 for an unknown kind."""
    wanted = arguments or ["short"]
    if unknown := {*wanted} - {*KINDS, "pythons"}:
        print(f"There is no kind {', '.join(sorted(unknown))}.", file=sys.stderr)
        return 2
    kinds = [KINDS[name] for name in KINDS if name in wanted]
    if "wire" in wanted:
        os.environ["PATH"] = PATH
    with tempfile.TemporaryDirectory() as folder:
        environs = (environ_of(number, Path(folder) / str(number)) for number in count(1))
        runs = [_parts(kind, environs) for kind in kinds]
        if "pythons" in wanted:
            runs.append(interpreters.runs(environs))
        # The longest of each come first.
        ordered = [run for row in zip_longest(*runs) for run in row if run is not None]
        checks = [check for kind in kinds for check in _checks(kind)]
        failed = _failed(
            [*ordered, *checks], SIDE_BY_SIDE if wanted == ["short"] else LONG_SIDE_BY_SIDE
        )
        if kinds:
            of_any = " or ".join(f"({kind.expression})" for kind in kinds)
            times = [*_pytest(TIMED), "-m", f"{TIMED} and ({of_any})", "tests"]
            failed += _failed([_part("times", times, next(environs))], 1)
    print(
        f"FAILED: {', '.join(failed)}" if failed else "All checks and tests are well.", flush=True
    )
    return 1 if failed else 0


def _parts(kind: Kind, environs: Iterator[dict[str, str]]) -> list[Run]:
    pytest = [*_pytest(kind.marker), "-m", f"{kind.expression} and not {TIMED}"]
    return [
        _part(name, [*pytest, *selected], next(environs)) for name, selected in kind.parts.items()
    ]


def _part(name: str, command: list[str], environ: Mapping[str, str]) -> Run:
    return Run(f"tests: {name}", partial(passes, name, command, environ, has_report=True))


def _pytest(marker: str | None) -> list[str]:
    return [*PYTEST, "--naming", marker] if marker else PYTEST


def _checks(kind: Kind) -> list[Run]:
    environ = {**os.environ, "MYPY_CACHE_DIR": str(_types_cache())}
    return [
        Run(name, partial(passes, name, command, environ, has_report=name == ADVISORIES))
        for name, command in kind.checks.items()
    ]


def _failed(runs: Iterable[Run], side_by_side: int) -> list[str]:
    """Runs checks and parts, so many at once; returns the names of those that failed."""
    with ThreadPoolExecutor(side_by_side) as pool:
        begun = [(run.name, pool.submit(run.passes)) for run in runs]
        return [name for name, run in begun if not run.result()]


def _types_cache() -> Path:
    """mypy's, for these packages: what it has learned of them is most of its work."""
    digest = hashlib.sha256(written(LOCKS["test"]).encode()).hexdigest()
    return cache() / f"mypy-{digest[:16]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
