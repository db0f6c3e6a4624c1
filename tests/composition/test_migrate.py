"""Migrations beside a service that goes on: they wait for no table, and leave nothing half done."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from pytest_django.plugin import DjangoDbBlocker

from config.management.commands.migrate import LOCK_WAIT, LONGER_WAIT
from tests.served.database import Database, new_database
from tests.served.service import manage
from tests.tools.folders import ROOT
from tests.tools.postgres import MIGRATED

WAITS = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'audit_by_words'::regclass"


@pytest.fixture
def database(django_db_blocker: DjangoDbBlocker) -> Iterator[Database]:
    with new_database(django_db_blocker.unblock, like=MIGRATED) as database:
        yield database


@contextmanager
def migrating(database: Database, *to: str) -> Iterator[subprocess.Popen[str]]:
    environ = {**os.environ, "DATABASE_URL": database.url, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "manage.py", "migrate", *to]
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.wait() == 0


@pytest.mark.full
def test_a_migration_gives_way_until_its_table_is_free(database: Database) -> None:
    with (
        psycopg.connect(database.url) as reader,
        psycopg.connect(database.url, autocommit=True) as caller,
    ):
        reader.execute("SELECT count(*) FROM config_mailnotification")
        # It would stand in the way for as long as there is a reader; a call waits for a lock for 4 seconds.
        caller.execute("SET lock_timeout = '60s'")
        assert int(LOCK_WAIT.removesuffix("ms")) < int(LONGER_WAIT.removesuffix("ms")) < 4_000
        with migrating(database, "config", "0001") as process:
            assert process.stdout is not None
            for _ in range(2):
                while "trying again" not in process.stdout.readline():
                    assert process.poll() is None
                for _ in range(20):
                    caller.execute("SELECT count(*) FROM config_mailnotification")
                    time.sleep(0.1)
            reader.commit()
            process.stdout.read()
        found = caller.execute("SELECT to_regclass('config_mailnotification')").fetchone()
        assert found == (None,)
    environ = {**os.environ, "DATABASE_URL": database.url}
    assert "trying again" not in manage(environ, "migrate")


@pytest.mark.full
def test_an_index_that_is_built_beside_others_waits_for_them(database: Database) -> None:
    environ = {**os.environ, "DATABASE_URL": database.url}
    manage(environ, "migrate", "accounts", "0028")
    with (
        psycopg.connect(database.url) as writer,
        psycopg.connect(database.url, autocommit=True) as looking,
    ):
        writer.execute(
            "INSERT INTO accounts_auditevent (at, action, actor, target, target_id,"
            " request_id, reason) VALUES (now(), 'user:made', '', '', '', '', '')"
        )
        with migrating(database) as process:
            while looking.execute(WAITS, [database.name]).fetchone() is None:
                assert process.poll() is None
                time.sleep(0.02)
            # Longer than any other statement of a migration waits.
            time.sleep(2)
            assert looking.execute(WAITS, [database.name]).fetchone() is not None
            writer.commit()
            assert process.stdout is not None
            assert "trying again" not in process.stdout.read()
        assert looking.execute(VALID).fetchone() == (True,)
