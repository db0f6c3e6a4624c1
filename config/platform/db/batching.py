"""Batches concurrent executions of one hot statement.

What a small statement costs is mostly the round trip and, where it writes, the commit. While one is in flight, others
of its kind gather and then go as one transaction through psycopg's pipeline.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from time import monotonic
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections
from psycopg_pool import PoolTimeout

from config.platform.db.connections import PooledConnection, StalePlan, release_connection
from config.platform.runtime import batches
from config.platform.runtime.batches import MOST, Batches, Execution
from config.platform.runtime.greenlets import run_whole

Row = tuple[Any, ...]
# A batch waits for no lock for long: then each of its executions is repeated alone, with the patience of the server.
_BEGIN = "BEGIN; SET LOCAL lock_timeout = '100ms'"
# Without an answer for so long, the server is away rather than busy; one that stands still for five seconds is not.
AWAY_SECONDS = 8.0
# The server is away: it may have committed before that, and a second try would have to wait as long as the first.
_AWAY = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
# The codes of a server that was ended, and of a pooler that has lost it.
_LOST = ("57P", "08")


def borrowed(pool: Any) -> PooledConnection:
    """A connection of the pool, for its ``lender`` to take back; Django's way to one takes as long as a statement.

    For tasks that nothing interrupts: a pool lends one for ever to a wait that was.
    """
    pool.open()
    connection: PooledConnection = pool.getconn()
    connection.lender = pool
    if not connection.autocommit:
        connection.autocommit = True
    return connection


class BatchedStatement(Batches["_Execution"]):
    """A statement for one row at most, prepared, with values by place or by name.

    Executions of this process that meet are sent as one batch. With ``order``, a key of their values, the statement
    writes: a batch is a transaction, sorted by it. Where it locks rows this must be an order of the rows, so that two
    batches never wait for each other. Inside a transaction of the caller the statement is part of that.
    No execution fails because of another: a batch that the database refuses is rolled back, and each repeated alone.
    """

    # When the server last answered any of them, and when it last kept silent for too long.
    answered_at = silent_at = 0.0

    def __init__(self, text: str, *, order: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self.text = text
        self._order = order

    def row(self, values: Any) -> Row | None:
        """The row for these values. Types must be clear from the text or the values."""
        ours: Any = connections[DEFAULT_DB_ALIAS]
        execution = _Execution(values, ours.pool)
        if ours.in_atomic_block or ours.pool is None:
            with ours.cursor() as cursor:
                self._execute_one(cursor, execution)
            return execution.result()
        # The leader may need this one: the pool can be empty because all who wait for it hold one.
        release_connection()
        self.execute(execution)
        if execution.is_undone:
            with ours.wrap_database_errors:
                run_whole(self._repeat, execution)
        return execution.result()

    def _repeat(self, execution: "_Execution") -> None:
        self.fly([execution], borrowed(execution.pool))

    def board(self, leader: "_Execution") -> PooledConnection:
        """Waits for a connection, as long as the server answers those that have one.

        A leader that has waited for a flight without an answer does not wait as long for another.
        """
        until = leader.waits_until
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

    def fly(self, batch: list["_Execution"], aboard: PooledConnection) -> None:
        began = monotonic()
        try:
            if order := self._order:
                batch = sorted(batch, key=lambda each: order(each.values))
            if batch:
                self._execute(aboard, batch)
                BatchedStatement.answered_at = monotonic()
        except Exception as error:  # noqa: BLE001 - each caller gets it
            is_undone = len(batch) > 1 and _is_undone(error)
            if getattr(error, "sqlstate", None) is None and monotonic() - began > AWAY_SECONDS:
                BatchedStatement.silent_at = monotonic()
            for each in batch:
                each.error, each.is_undone = error, is_undone
        finally:
            aboard.lender.putconn(aboard)

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
    """A statement that reads one row at most for each of several keys, so that keys that meet cost one execution.

    It says ``FROM (VALUES KEYS) AS asked(…, place)``, where keys have parts of ``types`` and a place, which is the
    end of a row. A list of rows rather than an array: the server knows its length and plans the statement once.
    """

    def __init__(self, text: str, types: Sequence[str]) -> None:
        key = ", ".join(f"%s::{each}" for each in types)
        keys = [f"({key}, {place})" for place in range(1, MOST + 1)]
        # A batch is filled up to the next of these sizes.
        sizes = (1, 2, 4, 8, 16, MOST)
        self._texts = {size: text.replace("KEYS", ", ".join(keys[:size])) for size in sizes}
        super().__init__(self._texts[1])

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
    """One execution: its values and the pool of connections, and its row or error once it is over."""

    __slots__ = ("is_undone", "pool", "row", "values")

    def __init__(self, values: Any, pool: Any) -> None:
        super().__init__(OperationalError("the statement was not executed"))
        self.values = values
        # Of the caller: a flight has no connection of Django's.
        self.pool = pool
        self.is_undone = False
        self.row: Row | None = None

    def read(self, cursor: psycopg.Cursor[Any]) -> None:
        """A row that cannot be decoded fails this execution alone."""
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
            # Its traceback would hold on to itself.
            del error


def _is_undone(error: Exception) -> bool:
    """Whether nothing has been done and another try is of use."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        return isinstance(error, StalePlan) or not isinstance(error, _AWAY)
    return not state.startswith(_LOST)
