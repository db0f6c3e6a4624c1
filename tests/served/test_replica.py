"""Exports and usage & money are answered by a real replica: one that follows, one that is behind, one that is gone."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import dj_database_url
import psycopg
import pytest
from django.db import ConnectionHandler, connections
from pytest_django.plugin import DjangoDbBlocker

from config.platform.db import replica
from config.platform.db.connections import called, database
from tests.bench.durable import durable_database
from tests.bench.processes import tree
from tests.bench.standby import Standby, standby
from tests.served.browser import Browser
from tests.served.database import Database, new_database
from tests.served.service import manage, running_service
from tests.tools import kept
from tests.tools.children import Child
from tests.tools.owners import as_superuser
from tests.tools.postgres import MIGRATED, Postgres
from tests.waiting import eventually

# Nothing beyond packages is needed: a copy of a server takes long.
pytestmark = pytest.mark.wire
EXPORT = "/admin/accounts/auditevent/export.csv"
MONEY = "/admin/usage-and-money/"
LATE = "from a replica"


@dataclass(kw_only=True)
class Pair:
    """A database and its copy."""

    database: Database
    copy: Standby
    child: Child

    @property
    def replica_url(self) -> str:
        return self.copy.url(self.database.url)

    def write(self, statement: str) -> None:
        with psycopg.connect(self.database.url, autocommit=True) as on:
            on.execute(statement.encode())

    @contextmanager
    def behind(self) -> Iterator[None]:
        """It still answers, and knows nothing of what is written meanwhile."""
        with psycopg.connect(as_superuser(self.replica_url), autocommit=True) as on:
            on.execute("SELECT pg_wal_replay_pause()")
            paused = "SELECT pg_get_wal_replay_pause_state()"
            eventually(lambda: on.execute(paused).fetchone() == ("paused",))
            try:
                yield
            finally:
                on.execute("SELECT pg_wal_replay_resume()")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.child.stop()
        try:
            yield
        finally:
            self.child = self.copy.server.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It neither answers nor refuses, as behind a network that is cut."""
        pids = tree(self.child.pid)
        _signal(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(pids, signal.SIGCONT)


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker
) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("replicated")
    kept.lay_out(Postgres(folder=folder, sockets=folder, log=folder / "log"), os.environ)
    with (
        durable_database(folder),
        new_database(django_db_blocker.unblock, like=MIGRATED) as database,
        standby(folder, os.environ["DATABASE_URL"]) as copy,
    ):
        made = Pair(database=database, copy=copy, child=copy.child)
        # Django's own view goes there too.
        host = dj_database_url.parse(database.url)["HOST"]
        with patch.dict(connections.databases["default"], HOST=host):
            yield made
        made.child.stop()


@contextmanager
def replica_at(url: str) -> Iterator[None]:
    """For this process."""
    other = database(dict(dj_database_url.parse(url)), max_size=4, timeout=2)
    settings = ConnectionHandler({"default": {}, "other": other}).settings["other"]
    with patch.dict(connections.settings, {replica.REPLICA: settings}):
        try:
            yield
        finally:
            connections[replica.REPLICA].close()
            connections[replica.REPLICA].close_pool()
            del connections[replica.REPLICA]


def test_a_look_goes_to_a_replica_that_knows_enough(pair: Pair) -> None:
    with replica_at(pair.replica_url), pair.database.rows():
        pair.write("CREATE TABLE noted (number int)")
        pair.copy.catch_up(pair.database.url)
        now = datetime.now(UTC)
        eventually(lambda: replica.look(now=now) == (replica.REPLICA, now))

        with pair.behind():
            pair.write("INSERT INTO noted VALUES (1)")
            # On a busy machine it may have been taken for away, here and above.
            eventually(lambda: replica.look(now=datetime.now(UTC)).at < now)
            with connections[replica.REPLICA].cursor() as cursor:
                cursor.execute("SELECT count(*) FROM noted")
                assert cursor.fetchone() == (0,)
            much_later = now + replica.MOST_BEHIND + timedelta(seconds=1)
            assert replica.look(now=much_later) == ("default", much_later)

        with pair.stopped():
            gone = time.monotonic()
            assert replica.look(now=now) == ("default", now)
        pair.copy.catch_up(pair.database.url)
        # Left alone for a while, so that not every page waits for a replica that is frozen.
        with patch.object(replica, "monotonic", return_value=gone):
            assert replica.look(now=now) == ("default", now)
        eventually(lambda: _look_after_a_while(now) == (replica.REPLICA, now))


def _look_after_a_while(now: datetime) -> replica.Look:
    """Once it is no longer left alone."""
    later = replica.ReplicaConnection.retry_at
    with patch.object(replica, "monotonic", return_value=later):
        return replica.look(now=now)


def test_a_server_that_follows_no_other_is_no_replica(pair: Pair) -> None:
    now = datetime.now(UTC)
    with replica_at(pair.database.url), pair.database.rows():
        assert replica.look(now=now) == ("default", now)
        assert called("pg_is_in_recovery", using=replica.REPLICA) is False


def test_pages_say_how_late_they_are_and_go_on_without_their_replica(
    pair: Pair, tmp_path: Path
) -> None:
    demo = tmp_path / "demo.json"
    environ = {"DATABASE_URL": pair.database.url, "REPLICA_URL": pair.replica_url}
    manage({**os.environ, **environ}, "seed_demo", "--output", str(demo))
    operator = json.loads(demo.read_text())
    pair.copy.catch_up(pair.database.url)
    with running_service(tmp_path, environ) as service:
        browser = Browser(service.url)
        browser.submit(
            "/admin/login/?next=/admin/",
            username=operator["operator_email"],
            password=operator["operator_password"],
        )
        pair.copy.catch_up(pair.database.url)
        assert browser.get(EXPORT).status_code == 200
        pair.copy.catch_up(pair.database.url)
        with pair.behind():
            pair.write(_NOTED)
            # On a busy machine the replica may have been taken for away.
            eventually(lambda: LATE in browser.get(MONEY).text)
            eventually(lambda: "test:noted" not in browser.get(EXPORT).text)
            # An operator's latest act is in the list at once.
            assert "test:noted" in browser.get("/admin/accounts/auditevent/?action=test:noted").text
        for ill in (pair.frozen, pair.stopped):
            with ill():
                _answered_by_the_primary(browser)


def _answered_by_the_primary(browser: Browser) -> None:
    file, page = browser.get(EXPORT), browser.get(MONEY)
    assert (file.status_code, page.status_code) == (200, 200)
    assert "test:noted" in file.text
    assert LATE not in page.text


_NOTED = """
INSERT INTO accounts_auditevent (at, action, actor, target, target_id, request_id, reason)
VALUES (now(), 'test:noted', 'test', 'test', 'test', '', '')
"""


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        # One for a connection that has just ended may be gone.
        with suppress(ProcessLookupError):
            os.kill(pid, number)
