"""Runs the tests that need neither rows nor a running service on every other Python of this machine, from 3.11 to 3.13.

``python -m tests.checks.interpreters`` beside servers; each has an environment in the user's cache, of the same lock.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.folders import ROOT
from tests.tools.kept import cache

MINORS = ("3.11", "3.12", "3.13")
PLACES = ("/usr/bin", "/usr/local/bin", *os.environ.get("PATH", "").split(os.pathsep))
VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
ROWS = {"db", "transactional_db", "django_db_setup"}
APART = ("served", "console", "local", "bench", "composition", "standins")


def main() -> int:
    """0 if they pass on each; the Python of this environment is left out, because it runs them all."""
    own = ".".join(map(str, sys.version_info[:3]))
    found = {version: python for version, python in interpreters() if version != own}
    failed = [version for version, python in found.items() if not passes(version, python)]
    print(
        f"Tried beside {own}: {', '.join(found) or 'none'}. Failed: {', '.join(failed) or 'none'}."
    )
    return 1 if failed else 0


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


def passes(version: str, python: Path) -> bool:
    """Makes its environment where there is none, and runs the tests."""
    print(f"Python {version}", flush=True)
    venv = cache() / f"venv-{version}"
    environ = {**os.environ, "VENV": str(venv)}
    install = [python, "-m", "tests.tools.install", "test"]
    if subprocess.run(install, cwd=ROOT, env=environ, check=False).returncode:
        return False
    tests = [
        *(venv / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("-p", "tests.checks.interpreters", "-m", "not wire and not full", "tests"),
        *(f"--ignore=tests/{name}" for name in APART),
    ]
    return subprocess.run(tests, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode == 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that need rows."""
    kept, left = [], []
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        needs = names & ROWS or item.get_closest_marker("django_db")
        (left if needs else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)


if __name__ == "__main__":
    sys.exit(main())
