"""The night as workers run it: once, also when one is killed in the middle, and only where a time is set."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, time, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from procrastinate.contrib.django.models import ProcrastinateJob, ProcrastinateWorker

from accounts.audit import Actor
from accounts.jobs import Job
from accounts.models import AuditEvent
from config.composition.operation import nightly
from config.composition.operation.nightly import BEGUN, JOBS, run_due
from config.management.commands.work import _RunningJobs
from config.platform.jobs.letters import letter
from config.platform.jobs.mail import queue_for_person
from config.platform.jobs.queue import NIGHT
from tests.composition.conftest import StartWorker
from tests.races import race
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
BY = Actor(name="the worker, every night")
AT = time(2, 30)
# A time of day that workers do not come to while a test runs.
PASSED = f"{datetime.now(UTC) - timedelta(hours=12):%H:%M}"
NAMES = [job.name for job in JOBS]


def ended() -> Counter[str]:
    """Counts the ended runs of each job of the night."""
    return Counter(
        AuditEvent.objects.filter(action__in=nightly.ENDED).values_list("target", flat=True)
    )


def begun() -> int:
    return AuditEvent.objects.filter(action=BEGUN).count()


def nights(status: str) -> int:
    return ProcrastinateJob.objects.filter(task_name=NIGHT, status=status).count()


def run_at(now: datetime) -> list[str]:
    return [job.name for job, _ in run_due(at=AT, by=BY, now=now)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The time at which the jobs of a night find themselves."""
    here = SimpleNamespace(now=datetime(2026, 3, 4, 2, 30, tzinfo=UTC))
    monkeypatch.setattr(nightly, "clock", lambda: here.now)
    return here


def test_a_night_is_due_once_from_its_time_on(clock: Any) -> None:
    assert run_at(clock.now) == NAMES
    assert run_at(clock.now + timedelta(hours=23, minutes=59)) == []
    clock.now += timedelta(days=1)
    assert run_at(clock.now) == NAMES


def test_a_night_that_no_worker_was_there_for_is_made_up_for(clock: Any) -> None:
    run_at(clock.now)
    clock.now += timedelta(days=1, hours=9)
    assert run_at(clock.now) == NAMES
    assert run_at(clock.now + timedelta(hours=1)) == []


def test_a_job_that_has_failed_waits_for_the_next_night(
    clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*, by: Actor, now: datetime, dry_run: bool) -> str:
        raise RuntimeError

    monkeypatch.setattr(nightly, "JOBS", (Job("broken", broken), *JOBS))
    assert run_at(clock.now) == ["broken", *NAMES]
    assert run_at(clock.now + timedelta(minutes=1)) == []


def test_a_night_run_by_hand_after_its_time_is_not_run_again(clock: Any) -> None:
    list(nightly.run_all(by=Actor.command("nightly")))
    assert run_at(clock.now + timedelta(minutes=1)) == []


def test_many_that_begin_at_once_run_each_job_once(now: datetime) -> None:
    results = race(*[lambda: run_at(now) for _ in range(6)])
    assert sorted(results, key=str) == sorted([NAMES, *[[]] * 5], key=str)
    assert ended() == Counter(NAMES)


def test_several_workers_run_the_night_once(worker: StartWorker) -> None:
    for _ in range(3):
        worker(NIGHTLY_AT=PASSED)
    eventually(lambda: ended().keys() == set(NAMES))
    eventually(lambda: nights("succeeded") > 0 and not nights("doing"))
    assert ended() == Counter(NAMES)
    assert begun() == 1


def test_a_night_whose_worker_was_killed_is_continued_by_the_next(
    worker: StartWorker, database_url: str
) -> None:
    with psycopg.connect(database_url) as other:
        # The sixth of the jobs waits for this.
        other.execute("LOCK TABLE telemetry_event")
        first = worker(NIGHTLY_AT=PASSED)
        eventually(lambda: len(ended()) == NAMES.index("count_telemetry"))
        first.kill()
        first.wait()
        # As if a minute had gone by since its last sign of life.
        ProcrastinateWorker.objects.update(last_heartbeat=datetime.now(UTC) - timedelta(minutes=1))
    worker(NIGHTLY_AT=PASSED)
    eventually(lambda: ended().keys() == set(NAMES))
    assert ended() == Counter(NAMES)
    assert begun() == 2


@pytest.mark.full
def test_a_long_night_keeps_the_only_place_of_a_worker_from_nothing(
    worker: StartWorker, database_url: str
) -> None:
    with psycopg.connect(database_url) as other:
        # The sixth of the jobs waits for this.
        other.execute("LOCK TABLE telemetry_event")
        worker("--concurrency", "1", NIGHTLY_AT=PASSED)
        eventually(lambda: len(ended()) == NAMES.index("count_telemetry"))
        queue_for_person(to="someone@acme.test", mail=letter("Hello\n\nHello"))
        mails = ProcrastinateJob.objects.filter(queue_name="mail", status="succeeded")
        eventually(mails.exists)
        assert nights("doing") == 1


@pytest.mark.full
def test_a_worker_without_a_time_runs_no_night(worker: StartWorker) -> None:
    worker(NIGHTLY_AT="")
    eventually(lambda: nights("succeeded") > 0)
    assert not AuditEvent.objects.filter(action__startswith="nightly:").exists()


@pytest.mark.parametrize(("task", "hangs"), [(NIGHT, False), ("mail.send", True)])
def test_a_night_may_take_longer_than_any_other_job(task: str, hangs: bool) -> None:
    running: Any = _RunningJobs()
    context: Any = SimpleNamespace(job=SimpleNamespace(task_name=task))

    def is_found_hanging() -> bool:
        try:
            asyncio.run(asyncio.wait_for(running.until_one_exceeds(0), 0.1))
        except TimeoutError:
            return False
        return True

    assert running(is_found_hanging, context, None) is hangs
