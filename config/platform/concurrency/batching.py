"""Batches concurrent executions of one hot statement.

Most of a small statement's cost is its round trip and, for a write, its commit. Executions that queue while a batch
runs become one transaction through psycopg's pipeline.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from time import monotonic
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections
from psycopg_pool import PoolTimeout

from config.platform.concurrency import batches
from config.platform.concurrency.batches import MOST, Batches, Execution
from config.platform.concurrency.greenlets import run_uninterrupted
from config.platform.db.connections import PooledConnection, StalePlan, release_connection

Row = tuple[Any, ...]
# A batch that waits for a lock is rolled back, and each execution repeated alone with the server's lock timeout.
_BEGIN = "BEGIN; SET LOCAL lock_timeout = '100ms'"
# A server that is silent for this long is unavailable. A checkpoint may stall it for five seconds.
AWAY_SECONDS = 8.0
# Errors of an unavailable server. It may have committed, and a second attempt would wait as long as the first.
_AWAY = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
# SQLSTATE classes of a server that was shut down, or that a pooler cannot reach.
_LOST = ("57P", "08")


def borrowed(pool: Any) -> PooledConnection:
    """Takes a connection from the pool, to be returned to its ``lender``. Django's way costs as much as a statement.

    It must run in an uninterruptible task: an interrupted wait loses the connection.
    """
    pool.open()
    connection: PooledConnection = pool.getconn()
    connection.lender = pool
    if not connection.autocommit:
        connection.autocommit = True
    return connection


class BatchedStatement(Batches["_Execution"]):
    """A prepared statement that returns at most one row, with positional or named values; its text has no comments.

    Concurrent executions in this process form one batch. A statement that writes has an ``order``, a sort key of the
    values: its batch is a transaction sorted by that key, which must order the locked rows to avoid deadlocks. Inside a
    transaction of the caller the statement is part of that. A batch that the database refuses is rolled back and each
    execution repeated alone, so none fails because of another.
    """

    answered_at = silent_at = 0.0

    def __init__(self, text: str, *, order: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        # psycopg parses a statement of over 4,096 bytes anew at each execution.
        self.text = " ".join(text.split())
        self._order = order

    def row(self, values: Any) -> Row | None:
        """Returns the row for these values. Types must be clear from the text or the values."""
        ours: Any = connections[DEFAULT_DB_ALIAS]
        execution = _Execution(values, ours.pool)
        if ours.in_atomic_block or ours.pool is None:
            with ours.cursor() as cursor:
                self._execute_one(cursor, execution)
            return execution.result()
        # The leader may need this connection: the pool may be empty because every waiter holds one.
        release_connection()
        self.execute(execution)
        if execution.is_undone:
            with ours.wrap_database_errors:
                run_uninterrupted(self._repeat, execution)
        return execution.result()

    def _repeat(self, execution: "_Execution") -> None:
        self.run([execution], borrowed(execution.pool))

    def acquire(self, leader: "_Execution") -> PooledConnection:
        """Waits for a connection while the server answers other batches. Fails fast after a batch that timed out."""
        until = leader.deadline
        if (
            max(until - batches.WAIT_SECONDS, BatchedStatement.answered_at)
            < BatchedStatement.silent_at
        ):
            raise OperationalError("the server does not answer")
        while True:
            try:
                return borrowed(leader.pool)
            except PoolTimeout:
                if monotonic() > min(until, BatchedStatement.answered_at + AWAY_SECONDS):
                    raise

    def run(self, batch: list["_Execution"], resource: PooledConnection) -> None:
        began = monotonic()
        try:
            if order := self._order:
                batch = sorted(batch, key=lambda each: order(each.values))
            if batch:
                self._execute(resource, batch)
                BatchedStatement.answered_at = monotonic()
        except Exception as error:  # noqa: BLE001 - each caller gets it
            is_undone = len(batch) > 1 and _is_undone(error)
            if getattr(error, "sqlstate", None) is None and monotonic() - began > AWAY_SECONDS:
                BatchedStatement.silent_at = monotonic()
            for each in batch:
                each.error, each.is_undone = error, is_undone
        finally:
            resource.lender.putconn(resource)

    def _execute(self, on: psycopg.Connection[Any], batch: Sequence["_Execution"]) -> None:
        cursor = on.cursor()
        if len(batch) == 1:
            self._execute_one(cursor, batch[0], prepare=True)
        elif self._order:
            on.execute(_BEGIN, prepare=False)
            try:
                self._execute_each(cursor, batch)
                on.commit()
            except Exception:
                if not on.closed:
                    on.rollback()
                raise
        else:
            self._execute_each(cursor, batch)

    def _execute_one(self, cursor: Any, execution: "_Execution", **options: bool) -> None:
        cursor.execute(self.text, execution.values, **options)
        execution.read(cursor)

    def _execute_each(self, cursor: psycopg.Cursor[Any], batch: Sequence["_Execution"]) -> None:
        cursor.executemany(self.text, [each.values for each in batch], returning=True)
        for each in batch:
            each.read(cursor)
            cursor.nextset()


class BatchedLookup(BatchedStatement):
    """A statement that looks up at most one row for each key, so that a batch of keys costs one execution.

    Its text contains ``FROM (VALUES KEYS) AS asked(…, place)``; a key has parts of ``types``, and ``place`` is the last
    column of each row. A list of rows has a known length, unlike an array, so the server plans the statement once.
    """

    def __init__(self, text: str, types: Sequence[str]) -> None:
        key = ", ".join(f"%s::{each}" for each in types)
        keys = [f"({key}, {place})" for place in range(1, MOST + 1)]
        # Batches are padded to one of these sizes.
        sizes = (1, 2, 4, 8, 16, MOST)
        super().__init__(text.replace("KEYS", keys[0]))
        self._texts = {size: self.text.replace(keys[0], ", ".join(keys[:size])) for size in sizes}

    def _execute_one(self, cursor: Any, execution: "_Execution", **options: bool) -> None:
        self._look_up(cursor, [execution], **options)

    def _execute_each(self, cursor: psycopg.Cursor[Any], batch: Sequence["_Execution"]) -> None:
        self._look_up(cursor, batch, prepare=True)

    def _look_up(self, cursor: Any, batch: Sequence["_Execution"], **options: bool) -> None:
        size = next(size for size in self._texts if size >= len(batch))
        keys = [each.values for each in batch] + [batch[-1].values] * (size - len(batch))
        cursor.execute(self._texts[size], list(chain.from_iterable(keys)), **options)
        rows = {place: row for *row, place in cursor.fetchall()}
        for place, each in enumerate(batch, 1):
            found = rows.get(place)
            each.row, each.error = found and tuple(found), None


class _Execution(Execution):
    """The values and connection pool of one execution, then its row or error."""

    __slots__ = ("is_undone", "pool", "row", "values")

    def __init__(self, values: Any, pool: Any) -> None:
        super().__init__(OperationalError("the statement was not executed"))
        self.values = values
        # The caller's pool: a batch has no Django connection.
        self.pool = pool
        self.is_undone = False
        self.row: Row | None = None

    def read(self, cursor: psycopg.Cursor[Any]) -> None:
        """Fetches the row. A row that cannot be decoded fails only this execution."""
        try:
            self.row, self.error = cursor.fetchone(), None
        except psycopg.DataError as error:
            self.error = error

    def result(self) -> Row | None:
        error, self.error = self.error, None
        if error is None:
            return self.row
        try:
            with connections[DEFAULT_DB_ALIAS].wrap_database_errors:
                raise error
        finally:
            # Breaks the reference cycle of the traceback.
            del error


def _is_undone(error: Exception) -> bool:
    """Returns whether the server changed nothing and another attempt may succeed."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        return isinstance(error, StalePlan) or not isinstance(error, _AWAY)
    return not state.startswith(_LOST)
