"""The log names the cause of a failed connection to the database, in a word that names nobody."""

import logging
import os

import psycopg
import pytest
from psycopg_pool import ConnectionPool, PoolTimeout

from config.platform.db.connections import PooledConnection
from config.platform.observability.database_causes import Cause
from config.platform.observability.logs import AllowListFormatter
from tests.platform.db.test_sessions import kwargs

# Addresses that fail, each with the cause that the log names.
FAILURES = [
    ("postgresql://nobody_here@{socket}/{name}", "role_unknown"),
    ("postgresql://shell@{socket}/nothing_here", "database_unknown"),
    ("postgresql://shell:hunter2@127.0.0.1:9/{name}", "nothing_listens"),
    ("postgresql://shell:hunter2@%2Fnonexistent/{name}", "no_socket"),
    ("postgresql://shell:hunter2@nowhere.invalid/{name}", "name_unknown"),
    ("postgresql://shell@{socket}/{name}?options=-c%20hunter2%3D1", "option_refused"),
]


@pytest.mark.parametrize(("address", "cause"), FAILURES)
def test_the_log_says_why_no_connection_is_made_and_neither_address_nor_password(
    address: str, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    host, _, name = os.environ["DATABASE_URL"].rpartition("@")[2].rpartition("/")
    given = kwargs(address.format(socket=host, name=name))
    caplog.handler.addFilter(Cause())
    with (
        ConnectionPool(
            kwargs=given,
            connection_class=PooledConnection,
            min_size=0,
            max_size=1,
            reconnect_timeout=0.1,
        ) as pool,
        pytest.raises(PoolTimeout),
    ):
        pool.getconn(timeout=2)
    lines = [
        AllowListFormatter().format(each)
        for each in caplog.records
        if each.name == "psycopg.pool" and each.args
    ]
    said = next(each for each in lines if "error connecting" in each)
    assert f'"reason":"{cause}"' in said
    for secret in ("hunter2", "nobody_here", "nothing_here", "nowhere", "nonexistent", "127.0.0.1"):
        assert secret not in said


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('FATAL:  password authentication failed for user "SSL"', "password_refused"),
        ('FATAL:  no pg_hba.conf entry for host "::1", user "a", no encryption', "host_refused"),
        ("FATAL:  sorry, too many clients already", "no_connection_free"),
        ("FATAL:  remaining connection slots are reserved", "no_connection_free"),
        ("FATAL:  the database system is starting up", "server_starts_or_stops"),
        ('FATAL:  permission denied for database "shell"', "role_may_not_connect"),
        ("server does not support SSL, but SSL was required", "tls_refused"),
        ("SSL error: certificate verify failed", "certificate_refused"),
        ("connection timeout expired", "timed_out"),
        ("etwas anderes", "psycopg.OperationalError"),
    ],
)
def test_each_cause_is_logged_as_a_reason(text: str, cause: str) -> None:
    record = logging.LogRecord("psycopg.pool", logging.WARNING, "", 0, "%r: %s", None, None)
    record.args = ("pool-1", psycopg.OperationalError(text))
    assert Cause().filter(record)
    assert record.__dict__["reason"] == cause
