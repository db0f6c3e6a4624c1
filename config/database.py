"""The database connection of this thread: giving it back early, statements asked all the time, and the shared clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any, cast

from django.db import (
    DEFAULT_DB_ALIAS,
    OperationalError,
    connection,
    connections,
)
from django.db.backends.postgresql.base import DatabaseWrapper, ServerBindingCursor
from django.db.backends.utils import CursorWrapper
from psycopg.errors import FeatureNotSupported, InvalidSqlStatementName


def release_connection() -> None:
    """Gives this thread's connection back to the pool, unless a transaction is open around us.

    Called before anything that waits for someone else: a provider, storage, a browser.
    """
    for ours in connections.all(initialized_only=True):
        if not ours.in_atomic_block:
            ours.close()


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
    if own := own_connection():
        with own.wrap_database_errors:
            own.ensure_connection()
            # What Django's own cursor() ends with.
            with own._prepare_cursor(_cursor(own.connection)) as cursor:  # noqa: SLF001
                yield cursor
        return
    with borrowed() as lent, _cursor(lent) as cursor:
        yield cursor


@contextmanager
def borrowed() -> Iterator[Any]:
    """A connection of psycopg's for statements that are each a transaction of their own, with Django's errors.

    For a thread without an ``own_connection()``. It is given back in whatever state it is: the pool knows which
    of them can be used again.
    """
    lender = _nobodys()
    with lender.wrap_database_errors:
        pool = lender.pool
        pool.open()
        lent = pool.getconn()
        try:
            if not lent.autocommit:
                lent.autocommit = True
            yield lent
        except (FeatureNotSupported, InvalidSqlStatementName) as error:
            # A migration has changed what a statement gives, or a pooler in between has lost it. All connections
            # begin anew, and whoever asked may ask again.
            lent.close()
            pool.drain()
            raise OperationalError("a prepared statement no longer fits") from error
        finally:
            pool.putconn(lent)


def own_connection() -> Any:
    """Django's connection of this thread, where something keeps it on that: a transaction, or that it counts queries.

    None where it may borrow one for each question. Then this thread has mostly never been given any of its own:
    that is too large to be made for each connection a client opens, and part of cycles that have to be collected.
    """
    ours = getattr(connections._connections, DEFAULT_DB_ALIAS, None)  # type: ignore[attr-defined]  # noqa: SLF001
    if ours is not None and (ours.connection is not None or ours.queries_logged):
        return ours
    return None if _nobodys().pool else connections[DEFAULT_DB_ALIAS]


@cache
def _nobodys() -> Any:
    """Django's connection that knows the pool, and how errors are told, and is never connected itself."""
    return connections.create_connection(DEFAULT_DB_ALIAS)


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
