"""Database connections: client-side timeouts, early release to the pool, and the shared clock.

PostgreSQL ends a statement that takes too long, but a frozen server ends nothing, while its kernel still acknowledges
packets. Each connection therefore waits slightly longer than its session's ``statement_timeout``, wherever that is set,
and is then closed: the state of its server is unknown.
"""

from collections.abc import Generator
from datetime import datetime
from typing import Any, Self, TypeVar

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections
from psycopg.errors import FeatureNotSupported, InvalidSqlStatementName
from psycopg_pool import ConnectionPool

from config.platform.db.sessions import with_session

# The time that a server needs beyond its own timeout to report it.
MARGIN_SECONDS = 2.0
# Limit for the first query on a new connection; the same as for connecting.
FIRST_ANSWER_SECONDS = 5.0
# A threshold that an address sets for a pooler without prepared statements.
NEVER_PREPARED = 1_000_000
# The polling interval of a wait, as psycopg's own.
WAKE_SECONDS = 0.1
_LIMIT = "SELECT extract(epoch FROM current_setting('statement_timeout')::interval)::float8"

R = TypeVar("R")


def plan_for_values(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:  # noqa: FBT001
    """Makes the server plan statements for their actual values instead of a generic plan; an ``execute_wrapper``.

    A generic plan cannot use partial indexes or statistics of rare values, and may scan a whole table.
    """
    on = context["connection"].connection
    threshold, on.prepare_threshold = on.prepare_threshold, None
    try:
        return execute(sql, params, many, context)
    finally:
        on.prepare_threshold = threshold


class StalePlan(psycopg.OperationalError):
    """A prepared statement is invalid: a migration has changed its result, or a pooler has lost it."""


class PooledConnection(psycopg.Connection[Any]):
    """A connection of Django's pool. ``patience``: seconds to wait for the server; ``None`` is no limit.

    Management commands and the worker of queued jobs set no ``statement_timeout`` and have no limit.
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
            # A batch prepares whatever the threshold, unless preparing is disabled.
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
        """Waits within ``patience``. A wait with its own timeout, such as for notifications, keeps it."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.patience)
        except (FeatureNotSupported, InvalidSqlStatementName) as error:
            self._give_up()
            raise StalePlan("a prepared statement no longer fits") from error
        except psycopg.errors.ReadOnlySqlTransaction as error:
            # The server has become a replica; another one accepts writes.
            self._give_up()
            raise psycopg.OperationalError("the server takes no writes") from error
        except psycopg.OperationalError as error:
            # An error without a code is not the server's: the connection is lost or the wait has timed out.
            if error.sqlstate is None or self.closed:
                self._give_up()
            raise

    def execute(self, query: Any, *args: Any, **options: Any) -> psycopg.Cursor[Any]:
        """Replaces the pool's check of a connection, an empty query, by a look at the socket without a round trip.

        A server that has closed the connection left its last message in the socket, followed by the end.
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
        """Closes this connection and replaces the idle ones, which are probably broken too."""
        self.close()
        if pool := _django(self.alias).pool:
            pool.drain()


def release_connection(alias: str = DEFAULT_DB_ALIAS) -> None:
    """Returns this thread's connection to the pool, unless a transaction is open.

    It is called before any wait for another party: a provider, storage, a browser.
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
    """Returns Django's connection of this thread: the proxy would look it up for every attribute."""
    return connections[alias]


def database(address: dict[str, Any], **pool: Any) -> dict[str, Any]:
    """Returns Django's settings for the database at an address."""
    return {
        **address,
        # Pooled: a request returns its connection when it ends or begins to wait for a provider.
        "CONN_MAX_AGE": 0,
        # Checked before each use, so that a restart of the database causes no error.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "server_side_binding": True,
            # From the second execution on: the multi-command statements of migrations, which run once, cannot be
            # prepared. An address may override this.
            "prepare_threshold": 1,
            **address.get("OPTIONS", {}),
            "connect_timeout": 5,
            # Detects a server that vanished; by default libpq waits for a quarter of an hour.
            "tcp_user_timeout": 15_000,
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "pool": {
                "min_size": 0,
                "max_idle": 60,
                # Short: the next request retries. A long one would prolong each outage.
                "reconnect_timeout": 3,
                "connection_class": PooledConnection,
                **pool,
            },
        },
    }
