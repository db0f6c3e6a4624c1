"""The database connection of this thread, giving it back early, and the clock that all hosts share."""

from datetime import datetime

from django.db import connection


def release_connection() -> None:
    """Gives this thread's connection back to the pool, unless a transaction is open around us.

    Called before anything that waits for someone else: a provider, storage, a browser.
    """
    if not connection.in_atomic_block:
        connection.close()


def database_now() -> datetime:
    """The time by the database, for what must not depend on one host's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        row = cursor.fetchone()
    assert row is not None
    now: datetime = row[0]
    return now
