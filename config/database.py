"""The database connection of this thread: giving it back early, statements asked all the time, and the shared clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, cast

from django.db import connection
from django.db.backends.postgresql.base import DatabaseWrapper, ServerBindingCursor
from django.db.backends.utils import CursorWrapper
from psycopg import OperationalError
from psycopg.errors import FeatureNotSupported, InvalidSqlStatementName


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


@contextmanager
def prepared() -> Iterator[CursorWrapper]:
    """A cursor for what most requests ask: the server reads and plans a statement once for each connection.

    Django's own cursors write values into the text of a statement, so that it is a new one each time. Here values
    are sent apart, as ``%s`` without casts by Django: a statement must say what type it means where that is not
    clear, and its text must be the same each time.

    It belongs to whatever transaction this thread is in. Outside of any, its connection is borrowed for these
    statements alone and each of them is a transaction: nothing is held between one question and the next, and
    nothing is spent on making Django ready for more.
    """
    with connection.wrap_database_errors:
        pool: Any = cast("Any", connection).pool
        if pool is None or connection.connection is not None or connection.queries_logged:
            connection.ensure_connection()
            # What Django's own cursor() ends with.
            with cast("Any", connection)._prepare_cursor(_cursor(connection.connection)) as cursor:  # noqa: SLF001
                yield cursor
            return
        pool.open()
        lent = pool.getconn()
        try:
            if not lent.autocommit:
                lent.autocommit = True
            with _cursor(lent) as cursor:
                yield cursor
        except (FeatureNotSupported, InvalidSqlStatementName) as error:
            # A migration has changed what a statement gives, or a pooler in between has lost it. All connections
            # begin anew, and whoever asked may ask again.
            lent.close()
            pool.drain()
            raise OperationalError("a prepared statement no longer fits") from error
        finally:
            pool.putconn(lent)


def _cursor(of: Any) -> Any:
    """psycopg's class as Django extends it, which has no types."""
    return cast("Any", ServerBindingCursor)(of)


def database_now() -> datetime:
    """The time by the database, for what must not depend on one host's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        row = cursor.fetchone()
    assert row is not None
    now: datetime = row[0]
    return now
