"""Real workers on the database of a test, with an empty queue."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection

from tests.standins.mail_server import MailServer

ROOT = Path(__file__).resolve().parent.parent.parent
StartWorker = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def queue(transactional_db: None) -> None:
    """The queue's tables are not Django's, so they are not emptied with the others."""
    with connection.cursor() as cursor:
        cursor.execute(
            "TRUNCATE procrastinate_jobs, procrastinate_workers, procrastinate_periodic_defers CASCADE"
        )


@pytest.fixture
def worker(queue: None, database_url: str, tmp_path: Path) -> Iterator[StartWorker]:
    """Starts real workers on the database of the test, whose mail goes to files, or as variables set."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        given = {"DATABASE_URL": database_url, "EMAIL_URL": f"file://{tmp_path}/mail", **variables}
        process = subprocess.Popen(
            [sys.executable, "manage.py", "work", *arguments],
            cwd=ROOT,
            env={**os.environ, **given},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.close()


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """The address of the database of the test, as a worker is given it."""
    return os.environ["DATABASE_URL"].rpartition("/")[0] + f"/{connection.settings_dict['NAME']}"
