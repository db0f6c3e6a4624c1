"""Retention: what goes, what stays, in batches, and twice at once."""

from datetime import datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from telemetry.models import Event
from telemetry.pruning import Pruned, prune
from tests.races import race
from tests.telemetry.reports import NOON, event, report

KEPT = timedelta(days=90)


def received(number: int, at: datetime) -> None:
    moment = (at - timedelta(minutes=1)).isoformat()
    report(*[event(occurred_at=moment) for _ in range(number)], now=at)


@pytest.mark.django_db
def test_only_events_past_their_retention_time_are_pruned() -> None:
    received(3, NOON - KEPT - timedelta(microseconds=1))
    received(2, NOON - KEPT)
    received(1, NOON)
    assert prune(now=NOON) == Pruned(events=3, kept_from=NOON - KEPT)
    assert Event.objects.count() == 3
    assert prune(now=NOON).events == 0


@pytest.mark.django_db
def test_the_setting_determines_the_retention(settings) -> None:
    settings.TELEMETRY_RETENTION_DAYS = 7
    received(2, NOON - timedelta(days=8))
    received(2, NOON - timedelta(days=6))
    assert prune(now=NOON).events == 2


@pytest.mark.django_db
def test_pruning_runs_in_batches_also_where_many_events_have_one_time() -> None:
    received(25, NOON - timedelta(days=120))
    received(8, NOON - timedelta(days=100))
    received(4, NOON)
    assert prune(now=NOON, batch=10).events == 33
    assert Event.objects.count() == 4


@pytest.mark.django_db
def test_a_dry_run_says_and_removes_nothing() -> None:
    received(3, NOON - timedelta(days=100))
    assert prune(now=NOON, dry_run=True).events == 3
    assert Event.objects.count() == 3


@pytest.mark.django_db
def test_the_command_says_one_line(now: datetime) -> None:
    received(3, now - timedelta(days=100))
    for arguments, said in ((["--dry-run"], "3 events would be removed"), ([], "3 events removed")):
        out = StringIO()
        call_command("prune_telemetry", *arguments, stdout=out)
        assert out.getvalue().startswith(f"prune_telemetry: {said}, kept from 20")
        assert out.getvalue().count("\n") == 1
    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_at_once_remove_each_event_once() -> None:
    received(300, NOON - timedelta(days=100))
    received(5, NOON)
    results = race(*[lambda: prune(now=NOON, batch=20)] * 3)
    assert sum(each.events for each in results if isinstance(each, Pruned)) == 300
    assert Event.objects.count() == 5


@pytest.mark.django_db(transaction=True)
def test_rows_locked_by_another_run_are_skipped() -> None:
    received(10, NOON - timedelta(days=100))

    def prune_in_short() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '2s'")
        return prune(now=NOON).events

    with transaction.atomic():
        held = list(Event.objects.select_for_update().order_by("id")[:4])
        assert race(prune_in_short) == [6]
    assert Event.objects.count() == len(held) == 4
    assert prune(now=NOON).events == 4


@pytest.mark.django_db
def test_the_oldest_are_found_by_index() -> None:
    received(500, NOON)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    plan = Event.objects.filter(received_at__lt=NOON).order_by("received_at")[:10].explain()
    assert "telemetry_by_time" in plan
