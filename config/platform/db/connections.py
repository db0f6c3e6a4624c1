"""Database connections: how long they wait for the server, giving them back early, and the shared clock.

PostgreSQL ends a statement that takes too long, but a frozen server ends nothing, and its kernel goes on acknowledging
packets. So each connection waits as long as the server itself may work on a statement (its ``statement_timeout``,
whoever has set it) and a moment longer, and is then closed: nobody knows what its server still does.
"""

from collections.abc import Generator
from datetime import datetime
from typing import Any, Self, TypeVar

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections
from psycopg.errors import FeatureNotSupported, InvalidSqlStatementName
from psycopg_pool import ConnectionPool

from config.platform.db.sessions import with_session

# The time that a server needs beyond its own limit to report the timeout.
MARGIN_SECONDS = 2.0
# The first query on a new connection; as long as connecting itself may take.
FIRST_ANSWER_SECONDS = 5.0
# A threshold that an address gives for a pooler that cannot prepare.
NEVER_PREPARED = 1_000_000
# The polling interval of a wait, as in psycopg.
WAKE_SECONDS = 0.1
_LIMIT = "SELECT extract(epoch FROM current_setting('statement_timeout')::interval)::float8"

R = TypeVar("R")


def plan_for_values(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:  # noqa: FBT001
    """Makes the server plan statements for their values, as an ``execute_wrapper``, not once for any values.

    A plan for any values knows no partial index and no rare word, and may read a whole table instead.
    """
    on = context["connection"].connection
    threshold, on.prepare_threshold = on.prepare_threshold, None
    try:
        return execute(sql, params, many, context)
    finally:
        on.prepare_threshold = threshold


class StalePlan(psycopg.OperationalError):
    """A prepared statement no longer fits: a migration has changed its result, or a pooler has lost it."""


class PooledConnection(psycopg.Connection[Any]):
    """A connection of Django's pool. ``patience``: how many seconds to wait for the server; ``None`` is for ever.

    Management commands and the worker of queued jobs set no ``statement_timeout`` and so wait for ever.
    """

    alias = DEFAULT_DB_ALIAS
    patience: float | None = FIRST_ANSWER_SECONDS
    lender: ConnectionPool[Any]

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Self:
        connected = super().connect(conninfo, **with_session(options))
        try:
            row = psycopg.Cursor(connected).execute(_LIMIT).fetchone()
            limit = row[0] if row else 0.0
            connected.patience = limit + MARGIN_SECONDS if limit else None
            # A batch prepares whatever the threshold, unless there is none.
            if connected.prepare_threshold and connected.prepare_threshold >= NEVER_PREPARED:
                connected.prepare_threshold = None
        except BaseException:
            connected.close()
            raise
        return connected

    def wait(
        self,
        gen: Generator[Any, Any, R],
        interval: float = WAKE_SECONDS,
        timeout: float | None = None,
    ) -> R:
        """A wait with its own timeout, such as for notifications, keeps it."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.patience)
        except (FeatureNotSupported, InvalidSqlStatementName) as error:
            self._give_up()
            raise StalePlan("a prepared statement no longer fits") from error
        except psycopg.errors.ReadOnlySqlTransaction as error:
            # The server has become a replica; another one takes writes.
            self._give_up()
            raise psycopg.OperationalError("the server takes no writes") from error
        except psycopg.OperationalError as error:
            # An error without a code is not the server's: the connection is lost or the wait has timed out.
            if error.sqlstate is None or self.closed:
                self._give_up()
            raise

    def execute(self, query: Any, *args: Any, **options: Any) -> psycopg.Cursor[Any]:
        """The pool checks a connection by an empty query; here that is a look at the socket, without a round trip.

        A server that has gone away has left its last message there, and after that the end.
        """
        if query:
            return super().execute(query, *args, **options)
        try:
            self.pgconn.consume_input()
            self.pgconn.consume_input()
        except psycopg.OperationalError:
            self._give_up()
            raise
        return self.cursor()

    def _give_up(self) -> None:
        """Closes this connection and replaces the idle ones, which are probably lost too."""
        self.close()
        if pool := _django(self.alias).pool:
            pool.drain()


def release_connection(alias: str = DEFAULT_DB_ALIAS) -> None:
    """Gives this thread's connection back to the pool, unless a transaction is open.

    Called before anything that waits for someone else: a provider, storage, a browser.
    """
    ours = _django(alias)
    if ours.connection is not None and not ours.in_atomic_block:
        ours.close()


def close_pool() -> None:
    """Closes every connection of this process as it exits."""
    for alias in connections:
        connections[alias].close()
        _django(alias).close_pool()


def database_now() -> datetime:
    """Returns the database's time, for decisions that must not depend on one host's clock."""
    now: datetime = called("now")
    return now


def called(function: str, *arguments: Any, using: str = DEFAULT_DB_ALIAS) -> Any:
    """Returns the result of a PostgreSQL function."""
    with connections[using].cursor() as cursor:
        cursor.callproc(function, arguments)
        row = cursor.fetchone()
    assert row is not None
    return row[0]


def _django(alias: str = DEFAULT_DB_ALIAS) -> Any:
    """This thread's connection by Django, looked up once: its proxy looks it up for every attribute."""
    return connections[alias]


def database(address: dict[str, Any], **pool: Any) -> dict[str, Any]:
    """Django's settings of the database of an address."""
    return {
        **address,
        # Pooled: a request returns its connection when it ends or starts to wait for a provider.
        "CONN_MAX_AGE": 0,
        # Checked before each use, so that a restart of the database causes no error.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "server_side_binding": True,
            # From the second time on; the several commands of a migration, which come once, cannot be prepared. An
            # address can say otherwise.
            "prepare_threshold": 1,
            **address.get("OPTIONS", {}),
            "connect_timeout": 5,
            # Detects a server that vanished; libpq by itself waits for a quarter of an hour.
            "tcp_user_timeout": 15_000,
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "pool": {
                "min_size": 0,
                "max_idle": 60,
                # Short: the next request tries again. A long one would prolong each outage.
                "reconnect_timeout": 3,
                "connection_class": PooledConnection,
                **pool,
            },
        },
    }
