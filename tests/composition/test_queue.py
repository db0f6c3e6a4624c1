"""Queued work survives the worker that was doing it."""

import signal
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import DatabaseError, connection
from django.utils import timezone
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateJob, ProcrastinateWorker
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job

from config.platform.jobs.mail import send_mail
from config.platform.jobs.queue import BACKOFF, rescue_jobs
from tests.composition.conftest import StartWorker
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def mails(folder: Path) -> list[str]:
    return (
        [path.read_text() for path in (folder / "mail").glob("*")]
        if (folder / "mail").exists()
        else []
    )


def test_a_worker_sends_what_was_queued(tmp_path: Path, worker: StartWorker) -> None:
    send_mail.defer(to=["ops@shell.test"], subject="Hello", text="from the queue")
    process = worker()
    eventually(lambda: ["from the queue" in mail for mail in mails(tmp_path)] == [True])
    eventually(lambda: ProcrastinateJob.objects.get(task_name="mail.send").status == "succeeded")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=90) == 0


def test_the_job_of_a_killed_worker_is_done_by_the_next(
    tmp_path: Path, worker: StartWorker
) -> None:
    send_mail.defer(to=["ops@shell.test"], subject="Hello", text="once more")
    # The state that kill -9 leaves: a job in progress, of a worker whose heart has stopped beating.
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '5 minutes') RETURNING id"
        )
        dead = cursor.fetchone()[0]
        cursor.execute("UPDATE procrastinate_jobs SET status = 'doing', worker_id = %s", [dead])
    worker()
    eventually(lambda: len(mails(tmp_path)) == 1)
    assert ProcrastinateWorker.objects.filter(pk=dead).count() == 0


def stalled(task: str, *, lock: str | None = None, attempts: int = 0) -> None:
    """A job of a worker that was killed a while ago."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH dead AS (INSERT INTO procrastinate_workers (last_heartbeat)"
            " VALUES (now() - interval '5 minutes') RETURNING id)"
            " INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, queueing_lock, attempts, worker_id)"
            " SELECT 'queue', %s, '{}', 'doing', %s, %s, id FROM dead",
            [task, lock, attempts],
        )


def waits(task: str, *, lock: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, queueing_lock)"
            " VALUES ('queue', %s, '{}', 'todo', %s)",
            [task, lock],
        )


def jobs() -> list[tuple[str, str, int]]:
    rows = ProcrastinateJob.objects.order_by("id")
    return list(rows.values_list("task_name", "status", "attempts"))


def test_the_job_of_a_dead_worker_that_the_clock_queued_again_is_queued_once(
    queue: None,
) -> None:
    stalled("usage.tell", lock="usage.tell")
    waits("usage.tell", lock="usage.tell")
    stalled("mail.send")
    async_to_sync(rescue_jobs)(app.job_manager)
    assert jobs() == [("usage.tell", "todo", 0), ("mail.send", "todo", 1)]


def test_a_job_that_its_workers_keep_dying_of_has_failed_for_good(queue: None) -> None:
    stalled("mail.send", attempts=BACKOFF.tries_again - 1)
    async_to_sync(rescue_jobs)(app.job_manager)
    assert jobs() == [("mail.send", "todo", BACKOFF.tries_again)]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE procrastinate_jobs SET status = 'doing'")
    async_to_sync(rescue_jobs)(app.job_manager)
    assert jobs() == [("mail.send", "failed", BACKOFF.tries_again + 1)]


def test_a_job_that_one_worker_died_of_is_tried_at_once_and_then_after_growing_waits(
    queue: None,
) -> None:
    for attempts in (0, 1, 2, 9):
        stalled("mail.send", attempts=attempts)
    begun = timezone.now()
    async_to_sync(rescue_jobs)(app.job_manager)
    ended = timezone.now()
    waits = [timedelta(seconds=each) for each in (0, 26, 74, BACKOFF.longest_seconds)]
    for job, wait in zip(ProcrastinateJob.objects.order_by("id"), waits, strict=True):
        assert begun + wait <= job.scheduled_at <= ended + wait


def test_a_job_that_has_ended_after_all_keeps_no_other_from_being_rescued(
    queue: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled("mail.send")
    stalled("releases.place")
    found = list(async_to_sync(app.job_manager.get_stalled_jobs)(seconds_since_heartbeat=45))
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE procrastinate_jobs SET status = 'succeeded' WHERE task_name = 'mail.send'"
        )

    async def seen_before(**options: object) -> list[Job]:
        return found

    monkeypatch.setattr(app.job_manager, "get_stalled_jobs", seen_before)
    async_to_sync(rescue_jobs)(app.job_manager)
    assert jobs() == [("mail.send", "succeeded", 0), ("releases.place", "todo", 1)]


def test_a_worker_begins_although_the_same_is_queued_that_a_dead_one_was_doing(
    tmp_path: Path, worker: StartWorker
) -> None:
    stalled("queue.forget", lock="queue.forget")
    waits("queue.forget", lock="queue.forget")
    send_mail.defer(to=["ops@shell.test"], subject="Hello", text="all the same")
    worker()
    eventually(lambda: len(mails(tmp_path)) == 1)


def test_a_worker_outlives_a_restart_of_its_connections(
    tmp_path: Path, worker: StartWorker
) -> None:
    process = worker()
    eventually(ProcrastinateWorker.objects.exists)
    with psycopg.connect(**dsn(), autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            [connection.settings_dict["NAME"]],
        )
    connection.close()
    eventually(queued)
    eventually(lambda: len(mails(tmp_path)) == 1)
    assert process.poll() is None


def queued() -> bool:
    try:
        send_mail.defer(to=["ops@shell.test"], subject="Hello", text="after the restart")
    except (DatabaseError, ConnectorException):
        connection.close()
        return False
    return True


def dsn() -> dict[str, str]:
    config = settings.DATABASES["default"]
    return {"host": config["HOST"], "user": config["USER"], "dbname": "postgres"}
