"""Abandoned attempts in the table of release 1f2697d go to their records."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from accounts.models import Client, User
from tests.triggers import without_triggers
from tests.usage.of_before import leave_attempt
from tests.usage.test_budgets import NOON, NOVEMBER, ask, end
from usage.models import UsageRecord
from usage.spending.statements import Attempt, Statement, attempts_of

MANY = 1_200
BEFORE = [("usage", "0032_left_attempts_are_on_the_record")]


def rows() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM usage_leftattempt")
        found: int = cursor.fetchone()[0]
        return found


@pytest.mark.django_db
def test_an_attempt_that_a_process_of_before_writes_is_on_its_record(user: User) -> None:
    call = ask(user)
    later = NOON + timedelta(seconds=1, microseconds=5)
    leave_attempt(call.record_id, "first", cost=None, asked_at=NOON, left_at=later)
    leave_attempt(call.record_id, "second", cost=7, asked_at=later, left_at=later)
    assert rows() == 0
    record = UsageRecord.objects.get(pk=call.record_id)
    assert attempts_of([record])[record.pk] == [
        Attempt("first", 10, 20, None, False, NOON, later),
        Attempt("second", 10, 20, 7, False, later, later),
    ]


@pytest.fixture
def unmoved(user: User, transactional_db: None) -> Iterator[list[UsageRecord]]:
    """Records with attempts as they were before the migration, more than go in one batch."""
    records = [end(user, ask(user), output=2) for _ in range(2)]
    try:
        MigrationExecutor(connection).migrate(BEFORE)
        with without_triggers():
            for number in range(MANY):
                # The ledger has no constraint that would want the records of all.
                record_id = records[number % 2].pk
                left_at = NOON + timedelta(seconds=number)
                leave_attempt(record_id, "first", cost=1, asked_at=left_at, left_at=left_at)
        yield records
    finally:
        _migrate_to_now()


def _migrate_to_now() -> None:
    """Makes the columns of today's records."""
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())


def test_attempts_of_before_are_moved_once_and_in_order(
    unmoved: list[UsageRecord], organisation: Client
) -> None:
    assert rows() == MANY
    for _ in range(2):
        executor = MigrationExecutor(connection)
        executor.migrate([("usage", "0033_left_attempts_are_moved")])
    assert rows() == 0
    _migrate_to_now()
    for number, record in enumerate(unmoved):
        record.refresh_from_db()
        times = [each.asked_at for each in attempts_of([record])[record.pk]]
        assert times == [NOON + timedelta(seconds=n) for n in range(number, MANY, 2)]
    [line] = Statement(client_id=organisation.pk, month=NOVEMBER).abandoned()
    assert (line.calls, line.cost) == (MANY, MANY)
