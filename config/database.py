"""The database connection of this thread: giving it back early, statements asked all the time, and the shared clock."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any, cast

from django.db import (
    DEFAULT_DB_ALIAS,
    InterfaceError,
    OperationalError,
    connection,
    connections,
)
from django.db.backends.postgresql.base import DatabaseWrapper, ServerBindingCursor
from django.db.backends.utils import CursorWrapper
from psycopg.errors import FeatureNotSupported, InvalidSqlStatementName

from config.together import Together, Unanswered


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
    ours = _ours()
    with ours.wrap_database_errors:
        pool = _lender(ours)
        if pool is None:
            ours = cast("Any", connections[DEFAULT_DB_ALIAS])
            ours.ensure_connection()
            # What Django's own cursor() ends with.
            with ours._prepare_cursor(_cursor(ours.connection)) as cursor:  # noqa: SLF001
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


Row = tuple[Any, ...]


class Statement:
    """What requests ask all the time, each for one row at most. It is prepared.

    Those that requests of this process ask at the same time go as one: as a transaction of their own, in which each
    is executed as if it were alone, sorted by ``order`` of their values. Where they lock rows, this must be an order
    of the rows, so that two such transactions never wait for each other. What only reads can be one question for
    all: ``of_many`` is asked with a list for each place of the values, and gives before each row its number in them,
    counted from 1. In a transaction of its caller a statement is part of that.
    """

    def __init__(
        self, text: str, *, order: Callable[[Any], Any] | None = None, of_many: str = ""
    ) -> None:
        self.text = text
        self._order = order
        self._of_many = of_many
        self._together = Together(self._rows, undone=_is_undone)

    def row(self, values: Any) -> Row | None:
        """The row for these values, by place or by name; values that the text does not name are left out."""
        if _lender(_ours()) is None:
            return self._own_row(values)
        try:
            return self._together(values)
        except Unanswered as error:
            raise OperationalError("whoever asked was ended") from error

    def _rows(self, asked: Sequence[Any]) -> Sequence[Row | None]:
        if len(asked) == 1:
            return [self._own_row(asked[0])]
        return self._rows_of_one(asked) if self._of_many else self._rows_of_each(asked)

    def _own_row(self, values: Any) -> Row | None:
        with prepared() as cursor:
            cursor.execute(self.text, values)
            row: Row | None = cursor.fetchone()
            return row

    def _rows_of_one(self, asked: Sequence[Any]) -> list[Row | None]:
        """Those of one question for all."""
        with prepared() as cursor:
            cursor.execute(self._of_many, [list(each) for each in zip(*asked, strict=True)])
            found = {number - 1: tuple(row) for number, *row in cursor}
        return [found.get(number) for number in range(len(asked))]

    def _rows_of_each(self, asked: Sequence[Any]) -> list[Row | None]:
        """Those of each in one transaction, sent in one go. Raises ``_Undone`` where nothing has come of it."""
        numbers = list(range(len(asked)))
        if order := self._order:
            numbers.sort(key=lambda number: order(asked[number]))
        is_sent = False
        try:
            with prepared() as cursor:
                lent: Any = cursor.connection
                with lent.pipeline():
                    with lent.transaction():
                        lent.execute(_SHORT_LOCKS)
                        ordered = [asked[number] for number in numbers]
                        cast("Any", cursor).executemany(self.text, ordered, returning=True)
                    is_sent = True
                found = {number: _next(cursor) for number in numbers}
        except Exception as error:
            if _is_refusal(error) or not (
                is_sent or isinstance(error, (OperationalError, InterfaceError))
            ):
                raise _Undone from error
            raise
        return [found[number] for number in range(len(asked))]


# Nobody waits long for the locks that another needs: whose row is locked is asked for alone, with more patience.
_SHORT_LOCKS = "SET LOCAL lock_timeout = '100ms'"


class _Undone(Exception):
    """All that a transaction was to do has not been done."""


def _next(cursor: CursorWrapper) -> Row | None:
    row: Row | None = cursor.fetchone()
    cursor.nextset()
    return row


def _is_undone(error: Exception) -> bool:
    return isinstance(error, _Undone) or _is_refusal(error)


def _is_refusal(error: BaseException | None) -> bool:
    """Whether the database itself has said so: then it has taken back what it was asked in this transaction.

    One that goes away (class 57P) may have committed before it says that.
    """
    while error is not None and getattr(error, "sqlstate", None) is None:
        error = error.__cause__
    return error is not None and not cast("Any", error).sqlstate.startswith("57P")


def _ours() -> Any:
    """What ``connection`` stands for in this thread, or where it has not been asked for anything yet, in none.

    To be made for each connection that a client opens it is too large, and part of cycles that have to be collected.
    """
    return getattr(connections._connections, DEFAULT_DB_ALIAS, None) or _nobodys()  # type: ignore[attr-defined]  # noqa: SLF001


@cache
def _nobodys() -> Any:
    """What knows the pool, and how errors are told, and never has a connection itself."""
    return connections.create_connection(DEFAULT_DB_ALIAS)


def _lender(ours: Any) -> Any:
    """The pool, where nothing keeps this thread on a connection of its own."""
    if ours.connection is not None or ours.queries_logged:
        return None
    return ours.pool


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
