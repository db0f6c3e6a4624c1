"""Waiting for a database: not longer than it may work, and never for one that is frozen."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from threading import Barrier, Thread

import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections
from psycopg_pool import ConnectionPool, PoolTimeout

from config.platform.db import connections as db_connections
from config.platform.db.connections import PooledConnection, release_connection
from config.platform.problems.error_mapping import problem_of
from tests.platform.db.own_postgres import OwnPostgres, own_postgres
from tests.tools.folders import ROOT
from tests.waiting import eventually

SHORT = "-c statement_timeout=300ms"
PATIENCE = 0.6


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as server:
        yield server


@pytest.fixture(autouse=True)
def _little_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db_connections, "MARGIN_SECONDS", 0.3)


def test_a_connection_waits_as_long_as_its_server_may_work_and_a_moment_longer(
    server: OwnPostgres,
) -> None:
    for options, patience in ((SHORT, PATIENCE), ("-c statement_timeout=2min", 120.3), ("", None)):
        with PooledConnection.connect(server.url, options=options, autocommit=True) as opened:
            assert opened.patience == pytest.approx(patience)


def test_a_slow_statement_is_ended_by_the_server_and_the_connection_lives(
    server: OwnPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server's own message may come at any later time.
    monkeypatch.setattr(db_connections, "MARGIN_SECONDS", 60.0)
    with PooledConnection.connect(server.url, options=SHORT, autocommit=True) as opened:
        with pytest.raises(psycopg.errors.QueryCanceled):
            opened.execute("SELECT pg_sleep(100)")
        assert opened.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.wall_time
def test_a_frozen_server_is_given_up_and_its_connection_is_closed(server: OwnPostgres) -> None:
    opened = PooledConnection.connect(server.url, options=SHORT, autocommit=True)
    with server.frozen():
        began = time.monotonic()
        with pytest.raises(psycopg.OperationalError) as error:
            opened.execute("SELECT 1")
        assert PATIENCE <= time.monotonic() - began < 60
    assert opened.closed
    problem = problem_of(error.value)
    assert problem is not None
    assert (problem.code, problem.headers) == ("service_unavailable", {"Retry-After": "5"})


def test_a_server_that_takes_no_writes_is_unavailable_and_its_connection_is_closed(
    server: OwnPostgres,
) -> None:
    only = "-c default_transaction_read_only=on"
    opened = PooledConnection.connect(server.url, options=only, autocommit=True)
    assert opened.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError) as error:
        opened.execute("CREATE TABLE anything ()")
    assert opened.closed
    problem = problem_of(error.value)
    assert problem is not None
    assert problem.code == "service_unavailable"


def test_a_transaction_that_is_cut_short_is_not_waited_for_twice(server: OwnPostgres) -> None:
    opened = PooledConnection.connect(server.url, options=SHORT, autocommit=True)

    def cut_short() -> None:
        with opened.transaction():
            opened.execute("SELECT 1")
            with server.frozen():
                opened.execute("SELECT 2")

    with pytest.raises(psycopg.OperationalError):
        cut_short()
    assert opened.closed


def test_listening_for_notifications_is_not_given_up(server: OwnPostgres) -> None:
    opened = PooledConnection.connect(server.url, options=SHORT, autocommit=True)
    with opened, psycopg.connect(server.url, autocommit=True) as other:
        opened.execute("LISTEN news")
        assert list(opened.notifies(timeout=PATIENCE * 2)) == []
        other.execute("NOTIFY news")
        (notice,) = opened.notifies(timeout=60, stop_after=1)
        assert notice.channel == "news"


def test_a_pool_replaces_connections_that_were_given_up(server: OwnPostgres) -> None:
    chosen = settings.DATABASES["default"]["OPTIONS"]["pool"]
    options = {**chosen, "timeout": 1, "reconnect_timeout": 0.5}
    connecting = {"options": SHORT, "autocommit": True, "connect_timeout": 2}
    with ConnectionPool(
        server.url,
        kwargs=connecting,
        open=False,
        check=ConnectionPool.check_connection,
        **options,
    ) as pool:
        with pool.connection(timeout=60) as opened:
            opened.execute("SELECT 1")
        with server.frozen():
            for _ in range(3):
                with (
                    pytest.raises((PoolTimeout, psycopg.OperationalError)),
                    pool.connection() as opened,
                ):
                    opened.execute("SELECT 1")

        def answers() -> bool:
            with suppress(psycopg.OperationalError), pool.connection() as opened:
                return opened.execute("SELECT 1").fetchone() == (1,)
            return False

        eventually(answers)


@pytest.mark.django_db(transaction=True)
def test_a_restart_that_ends_all_idle_connections_costs_nobody_an_error() -> None:
    all_open = Barrier(8)
    pids: list[int] = []

    def borrow() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pids.extend(cursor.fetchone())
        all_open.wait(60)
        release_connection()

    threads = [Thread(target=borrow) for _ in range(8)]
    release_connection()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(pids)) == 8
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid, 10000) FROM unnest(%s::int[]) pid", [pids])
    for _ in range(8):
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)
        release_connection()


def test_the_pool_of_the_service_is_made_of_such_connections() -> None:
    assert settings.DATABASES["default"]["OPTIONS"]["pool"]["connection_class"] is PooledConnection


def test_a_wait_that_was_given_up_takes_no_connection_from_the_pool() -> None:
    """A pool keeps those who wait; who was interrupted would be lent a connection for ever."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.platform.db.late_for_the_pool"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.stdout.splitlines() == ["3", "lent again"], done.stderr
