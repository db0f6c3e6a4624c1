"""Statements that requests ask all the time, by the shortest way there is to the database and back.

A cursor serves whatever it may be asked: it takes a statement apart, sees to transactions and keeps a result for being
fetched, which for a row by its key is most of the work. Here a statement has been taken apart once, and what goes over
the connection is psycopg's: how values are sent and rows read, which statements are prepared, and the waiting.
"""

import re
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import psycopg
from django.db import DataError, InterfaceError, OperationalError
from psycopg import generators
from psycopg._preparing import Prepare
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from config.database import borrowed, own_connection, prepared
from config.together import Together, Unanswered

Row = tuple[Any, ...]
# An error is that of a row which cannot be read.
Answer = Row | Exception | None

# Nobody waits long for the locks that another needs: whose row is locked is asked for alone, with more patience.
SHORT_LOCKS = b"SELECT set_config('lock_timeout', '100ms', true)"
_PLACE = re.compile(r"%(?:\((\w+)\))?s")


class Statement:
    """What requests ask all the time, each for one row at most. It is prepared.

    Those that requests of this process ask at the same time go as one: as a transaction of their own, in which each
    is executed as if it were alone, sorted by ``order`` of their values. Where they lock rows, this must be an order
    of the rows, so that two such transactions never wait for each other. What only reads can be one question for
    all: ``of_many`` is asked with a list for each place of the values, and gives before each row its number in them,
    counted from 1. A row that cannot be read is the trouble of whoever asked for it, and of nobody else.
    In a transaction of its caller a statement is part of that.

    Values are given for ``%s`` or ``%(name)s``, and a statement must say what type they have where that is not clear.
    """

    def __init__(
        self, text: str, *, order: Callable[[Any], Any] | None = None, of_many: str = ""
    ) -> None:
        self.text = text
        self._order = order
        self._one = _Words.of(text)
        self._many = _Words.of(of_many) if of_many else None
        self._together = Together(self._rows, undone=_is_undone)

    def row(self, values: Any) -> Row | None:
        """The row for these values, by place or by name; values that the text does not name are left out."""
        if own_connection():
            with prepared() as cursor:
                cursor.execute(self.text, values)
                row: Row | None = cursor.fetchone()
                return row
        try:
            return self._together(values)
        except Unanswered as error:
            raise OperationalError("whoever asked was ended") from error

    def _rows(self, asked: Sequence[Any]) -> Sequence[Answer]:
        if len(asked) == 1:
            with borrowed() as lent:
                rows = lent.wait(_rows_of(lent, self._one, asked[0]))
                return [rows[0] if rows else None]
        return self._rows_of_one(asked) if self._many else self._rows_of_each(asked)

    def _rows_of_one(self, asked: Sequence[Any]) -> list[Row | None]:
        """Those of one question for all. Raises ``_Undone`` where a value cannot be sent or a row not be read."""
        assert self._many is not None
        lists = [list(each) for each in zip(*asked, strict=True)]
        try:
            with borrowed() as lent:
                rows = lent.wait(_rows_of(lent, self._many, lists))
        except DataError as error:
            raise _Undone from error
        found: dict[int, Row] = {number - 1: row for number, *row in rows}
        return [tuple(found[number]) if number in found else None for number in range(len(asked))]

    def _rows_of_each(self, asked: Sequence[Any]) -> list[Answer]:
        """Those of each in one transaction, sent in one go. Raises ``_Undone`` where nothing has come of it."""
        numbers = list(range(len(asked)))
        if order := self._order:
            numbers.sort(key=lambda number: order(asked[number]))
        sent = _Sent()
        try:
            with borrowed() as lent:
                ordered = [asked[number] for number in numbers]
                rows = lent.wait(_first_rows_of_each(lent, self._one, ordered, sent))
        except Exception as error:
            # What cannot be sent is found out before anything is. Where there is no connection, none is for each alone.
            is_away = isinstance(error, (OperationalError, InterfaceError))
            if _is_refusal(error) or not (sent.anything or is_away):
                raise _Undone from error
            raise
        found = dict(zip(numbers, rows, strict=True))
        return [found[number] for number in range(len(asked))]


class _Words(NamedTuple):
    """A statement as the server takes it, with ``$1`` for the first value, and the names of its values, if any."""

    text: bytes
    names: tuple[str, ...]
    formats: tuple[PyFormat, ...]

    @classmethod
    def of(cls, text: str) -> "_Words":
        names: dict[str, int] = {}
        places = 0

        def place(found: re.Match[str]) -> str:
            nonlocal places
            name = found[1]
            if name is None or name not in names:
                places += 1
                if name is not None:
                    names[name] = places
            return f"${places if name is None else names[name]}"

        numbered = _PLACE.sub(place, text)
        # A cursor, which a transaction around it takes, would read another statement.
        assert "%" not in numbered, text
        return cls(numbered.encode(), tuple(names), (PyFormat.AUTO,) * places)

    def arranged(self, values: Any) -> Sequence[Any]:
        return [values[name] for name in self.names] if self.names else values


class _Ready(NamedTuple):
    """A statement with values as they are sent. ``query`` and ``types`` tell prepared statements apart."""

    query: bytes
    types: tuple[int, ...]
    formats: Sequence[int]
    values: Sequence[Any]


class _Sent:
    """Whether the server may have been told of anything."""

    anything = False


class _Undone(Exception):
    """All that a transaction was to do has not been done."""


# What psycopg's generators yield, and are sent, is for its ways of waiting to know.
Results = list[Any]
Asking = Generator[Any, Any, Results]


def _rows_of(lent: Any, words: _Words, values: Any) -> Generator[Any, Any, list[Row]]:
    """All rows for these values."""
    reading: Any = Transformer(lent)
    [result] = yield from _asked(lent, _ready(reading, words, values))
    reading.set_pgresult(result)
    rows: list[Row] = reading.load_rows(0, result.ntuples, tuple)
    return rows


def _first_rows_of_each(
    lent: Any, words: _Words, asked: Sequence[Any], sent: _Sent
) -> Generator[Any, Any, list[Answer]]:
    """The first row of each. To the server all that comes before the end of a pipeline is one transaction."""
    reading: Any = Transformer(lent)
    ready = [_ready(reading, words, values) for values in asked]
    # What is left to do by who asked before: an error of that must not come when something has been done.
    yield from lent._prepared.maintain_gen(lent)  # noqa: SLF001 - what all who ask on a connection share
    sent.anything = True
    results = yield from _asked_at_once(lent, ready)
    return [_first_row(reading, result) for result in results]


def _first_row(reading: Any, result: Any) -> Answer:
    reading.set_pgresult(result)
    try:
        row: Row | None = reading.load_row(0, tuple) if result.ntuples else None
    except psycopg.DataError as error:
        return DataError(*error.args).with_traceback(error.__traceback__)
    return row


def _ready(writing: Any, words: _Words, values: Any) -> _Ready:
    dumped = writing.dump_sequence(words.arranged(values), words.formats)
    return _Ready(words.text, writing.types, writing.formats, dumped)


def _asked(lent: Any, ready: _Ready) -> Asking:
    connection, known = lent.pgconn, lent._prepared  # noqa: SLF001 - as above
    yield from known.maintain_gen(lent)
    prepare, name = known.get(ready)
    if prepare is Prepare.SHOULD:
        connection.send_prepare(name, ready.query, param_types=ready.types)
        _refuse_failure((yield from generators.execute(connection)))
    _send(connection, ready, name)
    key = known.maybe_add_to_cache(ready, prepare, name)
    results: Results = yield from generators.execute(connection)
    if key is not None:
        known.validate(key, prepare, name, results)
    _refuse_failure(results)
    if not results:
        raise OperationalError("the database has given no answer")
    return results


def _asked_at_once(lent: Any, ready: Sequence[_Ready]) -> Asking:
    """A result for each. Raises the first failure, after which the server has done nothing."""
    connection, known = lent.pgconn, lent._prepared  # noqa: SLF001 - as above
    connection.enter_pipeline_mode()
    connection.send_query_params(SHORT_LOCKS, None)
    # How many results come before each one's, and before that of what prepares it.
    before, places, new = 1, [], []
    for each in ready:
        prepare, name = known.get(each)
        if prepare is Prepare.SHOULD:
            connection.send_prepare(name, each.query, param_types=each.types)
            new.append((known.key(each), prepare, name, before))
            before += 1
        _send(connection, each, name)
        known.maybe_add_to_cache(each, prepare, name)
        places.append(before)
        before += 1
    connection.pipeline_sync()
    yield from generators.send(connection)
    results: Results = []
    while not results or results[-1].status != ExecStatus.PIPELINE_SYNC:
        more = yield from generators.fetch_many(connection)
        if not more:
            raise OperationalError("the database has gone in the middle of its answers")
        results += more
    connection.exit_pipeline_mode()
    for key, prepare, name, place in new:
        # Forgotten where it has not come to that.
        known.validate(key, prepare, name, results[place : place + 1])
    _refuse_failure(results)
    return [results[place] for place in places]


def _send(connection: Any, ready: _Ready, name: bytes) -> None:
    """To a statement that is prepared by this name; without one, together with it."""
    if name:
        connection.send_query_prepared(name, ready.values, param_formats=ready.formats)
        return
    connection.send_query_params(
        ready.query, ready.values, param_types=ready.types, param_formats=ready.formats
    )


def _refuse_failure(results: Results) -> None:
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result)


def _is_undone(error: Exception) -> bool:
    return isinstance(error, _Undone) or _is_refusal(error)


def _is_refusal(error: BaseException | None) -> bool:
    """Whether the database itself has said so: then it has taken back what it was asked in this transaction.

    One that goes away (class 57P), or of which a pooler says that it has (class 08), may have committed before that.
    """
    while error is not None and getattr(error, "sqlstate", None) is None:
        error = error.__cause__
    return error is not None and not error.sqlstate.startswith(("57P", "08"))  # type: ignore[attr-defined]
