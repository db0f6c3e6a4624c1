"""The database connection of this thread, giving it back early, and the clock that all hosts share."""

from datetime import datetime
from typing import cast

from django.db import connection
from django.db.backends.postgresql.base import DatabaseWrapper


def release_connection() -> None:
    """Gives this thread's connection back to the pool, unless a transaction is open around us.

    Called before anything that waits for someone else: a provider, storage, a browser.
    """
    if not connection.in_atomic_block:
        connection.close()


def close_pool() -> None:
    """Closes every connection of this process, for its end."""
    connection.close()
    cast("DatabaseWrapper", connection).close_pool()


def database_now() -> datetime:
    """The time by the database, for what must not depend on one host's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        row = cursor.fetchone()
    assert row is not None
    now: datetime = row[0]
    return now
