"""Volumes: counted once a day is over, and there when its events no longer are."""

from datetime import UTC, datetime, timedelta
from io import StringIO
from unittest.mock import patch

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from telemetry import volumes as rules
from telemetry.models import DailyVolume, Event
from telemetry.pruning import prune
from telemetry.volumes import REST, Counted, Volume, count_days, volumes
from tests.telemetry.reports import NOON, event, report

pytestmark = pytest.mark.django_db
TODAY = NOON.date()
DAY = timedelta(days=1)


def came(at: datetime, *, number: int = 1, **members: object) -> None:
    report(*[event(occurred_at=at.isoformat(), **members) for _ in range(number)], now=at)


def test_each_day_that_is_over_is_counted_once() -> None:
    came(NOON - 4 * DAY, number=3)
    came(NOON - 4 * DAY, app=..., number=2)
    came(NOON - DAY, shell_version=...)
    came(NOON)
    assert count_days(now=NOON) == Counted(days=4, events=6)
    assert count_days(now=NOON) == Counted(days=0, events=0)
    assert volumes(day=TODAY - 4 * DAY) == [("sheets", "1.2.3", 3), ("", "1.2.3", 2)]
    assert volumes(day=TODAY - 2 * DAY) == []
    assert volumes(day=TODAY - DAY) == [("sheets", "", 1)]
    assert not DailyVolume.objects.filter(day=TODAY).exists()
    assert volumes(day=TODAY) == [("sheets", "1.2.3", 1)]
    assert count_days(now=NOON + DAY) == Counted(days=1, events=1)


def test_nothing_is_counted_without_events() -> None:
    assert count_days(now=NOON) == Counted(days=0, events=0)
    assert volumes(day=TODAY) == []


def test_a_day_is_over_when_its_last_batch_must_have_been_committed() -> None:
    midnight = datetime(2026, 11, 20, tzinfo=UTC)
    came(midnight - timedelta(seconds=1))
    assert count_days(now=midnight + timedelta(minutes=9)) == Counted(days=0, events=0)
    assert volumes(day=TODAY - DAY) == [("sheets", "1.2.3", 1)]
    assert count_days(now=midnight + timedelta(minutes=10)) == Counted(days=1, events=1)


def test_volumes_outlive_their_events() -> None:
    came(NOON - 100 * DAY, number=2)
    count_days(now=NOON - 99 * DAY)
    assert prune(now=NOON).events == 2
    assert not Event.objects.exists()
    assert count_days(now=NOON) == Counted(days=0, events=0)
    assert volumes(day=TODAY - 100 * DAY) == [("sheets", "1.2.3", 2)]


def test_a_day_that_was_counted_is_not_counted_again_when_it_is_shown() -> None:
    came(NOON - DAY)
    count_days(now=NOON)
    with CaptureQueriesContext(connection) as queries:
        volumes(day=TODAY - DAY)
    assert len(queries) == 2
    assert not [each for each in queries if "telemetry_event" in each["sql"]]


def test_versions_without_end_become_one_line() -> None:
    for number in range(5):
        came(NOON - DAY, shell_version=f"1.{number}", number=number + 1)
    with patch.object(rules, "MOST", 3):
        before = volumes(day=TODAY - DAY)
        assert count_days(now=NOON) == Counted(days=1, events=15)
    assert before == [
        ("sheets", "1.4", 5),
        ("sheets", "1.3", 4),
        ("sheets", "1.2", 3),
        (REST, REST, 3),
    ]
    assert volumes(day=TODAY - DAY) == before
    assert DailyVolume.objects.count() == 4


def test_the_largest_come_first() -> None:
    came(NOON, app="a", shell_version="2")
    came(NOON, app="b", number=2)
    came(NOON, app="a", shell_version="1")
    assert volumes(day=TODAY) == [
        Volume("b", "1.2.3", 2),
        Volume("a", "1", 1),
        Volume("a", "2", 1),
    ]


def test_the_command_says_one_line(now: datetime) -> None:
    # A day is counted ten minutes after its end.
    came(now - timedelta(minutes=10) - 3 * DAY, number=2)
    for arguments, said, kept in ((["--dry-run"], "would be counted", 0), ([], "counted", 1)):
        out = StringIO()
        call_command("count_telemetry", *arguments, stdout=out)
        assert out.getvalue().startswith("count_telemetry: 2 events of 3 days ")
        assert out.getvalue().endswith(f" {said}\n")
        assert DailyVolume.objects.count() == kept
