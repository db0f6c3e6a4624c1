"""Queued work survives the worker that was doing it."""

import signal
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.db import DatabaseError, connection
from procrastinate.contrib.django.models import ProcrastinateJob, ProcrastinateWorker
from procrastinate.exceptions import ConnectorException

from config.mail import send_mail
from tests.composition.conftest import StartWorker, eventually

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
    eventually(lambda: len(mails(tmp_path)) == 1)
    assert "from the queue" in mails(tmp_path)[0]
    eventually(lambda: ProcrastinateJob.objects.get(task_name="mail.send").status == "succeeded")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 0


def test_what_a_killed_worker_was_doing_is_done_by_the_next(
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
