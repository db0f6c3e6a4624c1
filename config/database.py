"""The database connection of this thread: giving it back early, statements asked all the time, and the shared clock."""

from datetime import datetime
from typing import cast

from django.db import connection
from django.db.backends.postgresql.base import DatabaseWrapper, ServerBindingCursor
from django.db.backends.utils import CursorWrapper


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


def prepared() -> CursorWrapper:
    """A cursor for what most requests ask: the server reads and plans a statement once for each connection.

    Django's own cursors write values into the text of a statement, so that it is a new one each time. Here values
    are sent apart, as ``%s`` without casts by Django: a statement must say what type it means where that is not
    clear, and its text must be the same each time.
    """
    connection.ensure_connection()
    raw = ServerBindingCursor(connection.connection)
    return cast("DatabaseWrapper", connection)._prepare_cursor(raw)  # noqa: SLF001 - what cursor() ends with


def database_now() -> datetime:
    """The time by the database, for what must not depend on one host's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        row = cursor.fetchone()
    assert row is not None
    now: datetime = row[0]
    return now
