"""A look at a connection's socket, as it stands in for a round trip."""

import socket

import psycopg

from config.quiet import is_quiet
from config.waiting import PatientConnection
from tests.config.own_postgres import own_postgres


def test_a_socket_is_quiet_until_something_or_its_end_has_come() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert is_quiet(here.fileno())
        there.sendall(b"!")
        assert not is_quiet(here.fileno())
        here.recv(1)
        assert is_quiet(here.fileno())
        there.shutdown(socket.SHUT_WR)
        assert not is_quiet(here.fileno())


def test_a_sign_of_life_costs_a_database_nothing_and_a_dead_one_has_none() -> None:
    with own_postgres() as server, psycopg.connect(server.url, autocommit=True) as other:
        connection = PatientConnection.connect(server.url, autocommit=True)
        connection.execute("SELECT 1")
        asked = "SELECT query FROM pg_stat_activity WHERE pid = %s"
        connection.execute("")
        (last,) = other.execute(asked, [connection.info.backend_pid]).fetchone() or ("",)
        assert last == "SELECT 1"
        other.execute("SELECT pg_terminate_backend(%s, 30000)", [connection.info.backend_pid])
        try:
            connection.execute("")
        except psycopg.OperationalError:
            assert connection.closed
        else:
            raise AssertionError("a dead connection gave a sign of life")
