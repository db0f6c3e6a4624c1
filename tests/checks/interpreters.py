"""The tests that need neither rows nor a running service, on every other Python of this machine from 3.11 to 3.13.

Each Python has an environment in the user's cache, of the same lock.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.checks.parts import Run, passes
from tests.tools.kept import cache

MINORS = ("3.11", "3.12", "3.13")
PLACES = ("/usr/bin", "/usr/local/bin", *os.environ.get("PATH", "").split(os.pathsep))
VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
ROWS = {"db", "transactional_db", "django_db_setup"}
SELECTED = "not wire and not full and not wall_time"
# Tests of servers, pages, tools, storage, packages and this repository's text do not depend on the Python.
APART = (
    *("served", "console", "local", "bench", "composition", "standins", "supply", "test_*.py"),
    *("platform/db/test_encoding.py", "platform/db/test_sessions.py", "platform/db/test_roles.py"),
    "releases/delivery",
)


def runs(environs: Iterator[dict[str, str]]) -> list[Run]:
    """A run on each; the Python of this environment is left out, because it runs all tests."""
    own = ".".join(map(str, sys.version_info[:3]))
    found = {version: python for version, python in interpreters() if version != own}
    print(f"Beside {own}: {', '.join(found) or 'no other Python'}", flush=True)
    return [
        Run(f"Python {version}", partial(passes_on, version, python, next(environs)))
        for version, python in found.items()
    ]


def interpreters() -> Iterator[tuple[str, Path]]:
    """Version and path of each that starts; the first of a version comes last, and so is the one that counts."""
    pyenv = sorted(Path.home().glob(".pyenv/versions/*/bin"))
    for place in reversed([*map(Path, PLACES), *pyenv]):
        for minor in MINORS:
            python = place / f"python{minor}"
            if python.exists():
                asked = subprocess.run(
                    [python, "-c", VERSION], capture_output=True, text=True, check=False
                )
                if asked.returncode == 0:
                    yield asked.stdout.strip(), python


def passes_on(version: str, python: Path, environ: Mapping[str, str]) -> bool:
    """Makes its environment where there is none, and runs the tests."""
    venv = cache() / f"venv-{version}"
    install = [str(python), "-m", "tests.tools.install", "test"]
    if not passes(f"Python {version}: packages", install, {**environ, "VENV": str(venv)}):
        return False
    tests = [
        *(str(venv / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("-p", "tests.checks.interpreters", "-m", SELECTED, "tests"),
        *(f"--ignore-glob=tests/{name}" for name in APART),
    ]
    return passes(f"Python {version}: tests", tests, environ)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that need rows."""
    kept, left = [], []
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        needs = names & ROWS or item.get_closest_marker("django_db")
        (left if needs else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
