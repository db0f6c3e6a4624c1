"""Rows for each kind of attention that no app owns."""

from django.db import connection

from accounts.audit import Actor, record
from config.composition.operation.nightly import JOBS
from tests.console.bad_days import HOUR, Day
from tests.console.test_front import beat, job

# Kinds of the worst day alone.
QUIET = {"clock", "worker"}


def bad_day(day: Day) -> None:
    beat(day.now)
    job("failed")
    job("todo", day.now - HOUR)
    for each in JOBS[:4]:
        said = {"target": each.name, "target_id": each.name}
        record("nightly:done", by=Actor.command("nightly"), now=day.now - 30 * HOUR, **said)  # type: ignore[arg-type]
    failed = {"target": JOBS[5].name, "target_id": JOBS[5].name, "after": {"says": "failed: X"}}
    record("nightly:failed", by=Actor.command("nightly"), now=day.now, **failed)  # type: ignore[arg-type]


def worst_day(day: Day) -> None:
    """No worker, and a clock that is ahead."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM procrastinate_workers")
        ahead = [int((day.now + HOUR).timestamp())]
        cursor.execute(
            "INSERT INTO procrastinate_periodic_defers (task_name, defer_timestamp) VALUES ('x', %s)",
            ahead,
        )
