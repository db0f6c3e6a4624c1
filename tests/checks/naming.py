"""A pytest plugin that reads only the files that name a marker: ``-p tests.checks.naming --naming wire``.

Reading all of them takes a process twenty seconds, and few have what is marked.
"""

from pathlib import Path

import pytest

# They decide where a test runs.
MARKERS = ("full", "wire", "wall_time")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--naming", choices=MARKERS, help="leave out files without this marker")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    marker = config.getoption("naming")
    leave_out = marker and collection_path.suffix == ".py" and not _names(collection_path, marker)
    return True if leave_out else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses a marker that comes from elsewhere, because its test would be left out."""
    for item in items:
        for marker in MARKERS:
            if item.get_closest_marker(marker) and not _names(item.path, marker):
                raise pytest.UsageError(
                    f"{item.nodeid}: name pytest.mark.{marker} in the file itself"
                )


def _names(path: Path, marker: str) -> bool:
    return f"pytest.mark.{marker}" in path.read_text()
