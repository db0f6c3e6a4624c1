"""Waiting for a database: not longer than it may work, and never for one that is frozen."""

import time
from collections.abc import Iterator

import psycopg
import pytest
from django.conf import settings
from psycopg_pool import ConnectionPool, PoolTimeout

from config import waiting
from config.api.error_mapping import problem_of
from config.waiting import NoAnswer, PatientConnection
from tests.config.own_postgres import OwnPostgres, own_postgres

SHORT = "-c statement_timeout=300ms"
PATIENCE = 0.6


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as server:
        yield server


@pytest.fixture(autouse=True)
def _little_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MARGIN_SECONDS", 0.3)


def test_a_connection_waits_as_long_as_its_server_may_work_and_a_moment_longer(
    server: OwnPostgres,
) -> None:
    for options, patience in ((SHORT, PATIENCE), ("-c statement_timeout=2min", 120.3), ("", None)):
        with PatientConnection.connect(server.url, options=options, autocommit=True) as connection:
            assert connection.patience == pytest.approx(patience)


def test_a_slow_statement_is_ended_by_the_server_and_the_connection_lives(
    server: OwnPostgres,
) -> None:
    with PatientConnection.connect(server.url, options=SHORT, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("SELECT pg_sleep(5)")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_frozen_server_is_given_up_and_its_connection_is_closed(server: OwnPostgres) -> None:
    connection = PatientConnection.connect(server.url, options=SHORT, autocommit=True)
    with server.frozen():
        began = time.monotonic()
        with pytest.raises(NoAnswer) as error:
            connection.execute("SELECT 1")
        assert PATIENCE <= time.monotonic() - began < 10
    assert connection.closed
    problem = problem_of(error.value)
    assert problem is not None
    assert (problem.code, problem.headers) == ("service_unavailable", {"Retry-After": "5"})


def test_a_transaction_that_is_cut_short_is_not_waited_for_twice(server: OwnPostgres) -> None:
    connection = PatientConnection.connect(server.url, options=SHORT, autocommit=True)

    def cut_short() -> None:
        with connection.transaction():
            connection.execute("SELECT 1")
            with server.frozen():
                connection.execute("SELECT 2")

    with pytest.raises(NoAnswer):
        cut_short()
    assert connection.closed


def test_listening_for_notices_is_not_given_up(server: OwnPostgres) -> None:
    connection = PatientConnection.connect(server.url, options=SHORT, autocommit=True)
    with connection, psycopg.connect(server.url, autocommit=True) as other:
        connection.execute("LISTEN news")
        assert list(connection.notifies(timeout=PATIENCE * 2)) == []
        other.execute("NOTIFY news")
        (notice,) = connection.notifies(timeout=30, stop_after=1)
        assert notice.channel == "news"


def test_a_pool_replaces_what_was_given_up(server: OwnPostgres) -> None:
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
        with pool.connection() as connection:
            connection.execute("SELECT 1")
        with server.frozen():
            for _ in range(3):
                with pytest.raises((PoolTimeout, NoAnswer)), pool.connection() as connection:
                    connection.execute("SELECT 1")
        deadline = time.monotonic() + 20
        while True:
            try:
                with pool.connection() as connection:
                    assert connection.execute("SELECT 1").fetchone() == (1,)
                break
            except PoolTimeout:
                assert time.monotonic() < deadline, "the pool did not recover"


def test_a_restart_that_ends_all_idle_connections_of_a_pool_costs_nobody_an_error(
    server: OwnPostgres,
) -> None:
    chosen = settings.DATABASES["default"]["OPTIONS"]["pool"]
    with ConnectionPool(
        server.url,
        kwargs={"autocommit": True},
        open=False,
        check=ConnectionPool.check_connection,
        **chosen,
    ) as pool:
        lent = [pool.getconn() for _ in range(8)]
        pids = [each.pgconn.backend_pid for each in lent]
        for each in lent:
            pool.putconn(each)
        with psycopg.connect(server.url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid, 10000) FROM unnest(%s) pid", [pids])
        with pool.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_pool_of_the_service_is_made_of_such_connections() -> None:
    assert settings.DATABASES["default"]["OPTIONS"]["pool"]["connection_class"] is PatientConnection
