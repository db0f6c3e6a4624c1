"""A pytest plugin: each test begins at another instant, and one that depends on the date or the time of day is found.

``pytest -p tests.checks.another_day --begin-at 2026-12-31T23:59:58 tests/usage`` begins each test there, and time goes
on: a midnight, a month's and a year's end pass within two seconds. PostgreSQL, Redis and other processes keep the true
time: what fails on a noon in mid-month too fails only by that.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import time_machine


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--begin-at", required=True, type=datetime.fromisoformat, help="UTC")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """From the first fixture of the test to its last."""
    at = item.config.getoption("begin_at").replace(tzinfo=UTC)
    with time_machine.travel(at, tick=True):
        return (yield)
