"""Statements that go together, and by a way of their own."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from threading import Event, Timer
from time import monotonic, sleep
from typing import Any

import psycopg
import pytest
from django.db import DataError, IntegrityError, OperationalError, connection, transaction
from psycopg._preparing import PrepareManager

from config import statements
from config.database import close_pool, prepared, release_connection
from config.statements import Statement
from tests.config.shelf import books, put, shelf
from tests.races import race

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def table():
    with shelf():
        yield


PUT = Statement(
    "INSERT INTO shelf VALUES (%(book)s) RETURNING book, pg_current_xact_id()::text",
    order=itemgetter("book"),
)
TOUCH = Statement(
    "UPDATE shelf SET book = book WHERE book = %(book)s RETURNING book", order=itemgetter("book")
)


def named(*books: str) -> list[dict[str, str]]:
    return [{"book": book} for book in books]


FIND = Statement(
    "SELECT book FROM shelf WHERE book = %s AND book <> %s",
    of_many="""
    SELECT asked.number, book FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS asked(one, other, number)
    JOIN shelf ON book = one AND book <> other
    """,
)


def at_once(statement: Statement, asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each but the first gets, or its error, where they come while that is away, in this order."""
    together = statement._together
    may_go, is_away, rows = Event(), Event(), together._ask

    def held(group: Any) -> Any:
        if len(group) == 1 and not may_go.is_set():
            is_away.set()
            assert may_go.wait(20)
        return rows(group)

    monkeypatch.setattr(together, "_ask", held)
    monkeypatch.setattr(together, "_patience", 20.0)
    with ThreadPoolExecutor(len(asked)) as pool:
        pool.submit(statement.row, asked[0])
        assert is_away.wait(20)
        asking: list[Future[Any]] = []
        for values in asked[1:]:
            asking.append(pool.submit(statement.row, values))
            until = monotonic() + 20
            while len(together._waiting) < len(asking):
                assert monotonic() < until
                sleep(0.001)
        may_go.set()
        return [each.exception(20) or each.result() for each in asking]


def test_what_comes_at_the_same_time_is_one_transaction(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = at_once(PUT, named("first", "Ulysses", "Dracula", "Persuasion"), monkeypatch)
    assert [row[0] for row in rows] == ["Ulysses", "Dracula", "Persuasion"]
    assert len({row[1] for row in rows}) == 1
    assert books() == ["Dracula", "Emma", "Persuasion", "Ulysses", "first"]


def test_one_that_is_refused_costs_the_others_nothing(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, refused, other = at_once(PUT, named("first", "Ulysses", "Emma", "Persuasion"), monkeypatch)
    assert isinstance(refused, IntegrityError)
    assert (one[0], other[0]) == ("Ulysses", "Persuasion")
    assert books() == ["Emma", "Persuasion", "Ulysses", "first"]


@pytest.mark.parametrize("impossible", ["a\0b", "a\ud800b", object()])
def test_what_cannot_be_sent_costs_the_others_nothing_and_them_alone_an_error(
    table: None, monkeypatch: pytest.MonkeyPatch, impossible: Any
) -> None:
    # In this order: some have been sent when it is found out.
    monkeypatch.setattr(PUT, "_order", None)
    asked = [*named("first", "Ulysses", "Dracula"), {"book": impossible}, *named("Persuasion")]
    one, two, refused, other = at_once(PUT, asked, monkeypatch)
    assert isinstance(refused, Exception)
    assert (one[0], two[0], other[0]) == ("Ulysses", "Dracula", "Persuasion")
    assert books() == ["Dracula", "Emma", "Persuasion", "Ulysses", "first"]


def test_what_is_refused_at_the_very_end_costs_the_others_nothing(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE shelf ADD after varchar(10) REFERENCES shelf DEFERRABLE INITIALLY DEFERRED"
        )
    release_connection()
    put = Statement("INSERT INTO shelf VALUES (%(book)s, %(after)s) RETURNING book")
    asked = [{"book": "first", "after": None}]
    asked += [{"book": "Ulysses", "after": "Emma"}, {"book": "Dracula", "after": "Nobody"}]
    one, refused = at_once(put, asked, monkeypatch)
    assert one == ("Ulysses",)
    assert isinstance(refused, IntegrityError)
    assert books() == ["Emma", "Ulysses", "first"]


def test_a_row_that_cannot_be_read_is_the_trouble_of_one_alone(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = "CASE book WHEN 'Lolita' THEN timestamptz 'infinity' END"
    put = Statement(f"INSERT INTO shelf VALUES (%(book)s) RETURNING book, {until}")
    asked = named("first", "Ulysses", "Lolita", "Dracula")
    one, unreadable, other = at_once(put, asked, monkeypatch)
    assert (one, other) == (("Ulysses", None), ("Dracula", None))
    assert isinstance(unreadable, DataError)
    # It has been done all the same, as for who goes alone.
    assert books() == ["Dracula", "Emma", "Lolita", "Ulysses", "first"]

    find = Statement(
        f"SELECT book, {until} FROM shelf WHERE book = %s",
        of_many=f"""
        SELECT asked.number, book, {until} FROM unnest(%s::text[]) WITH ORDINALITY AS asked(one, number)
        JOIN shelf ON book = one
        """,
    )
    titles = [("first",), ("Ulysses",), ("Lolita",), ("a\0b",), ("Dracula",)]
    one, unreadable, impossible, other = at_once(find, titles, monkeypatch)
    assert (one, other) == (("Ulysses", None), ("Dracula", None))
    assert isinstance(unreadable, DataError)
    assert isinstance(impossible, DataError)


def test_a_row_that_somebody_holds_is_waited_for_by_who_needs_it(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("Ulysses")
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("SELECT book FROM shelf WHERE book = 'Emma' FOR UPDATE")
        Timer(1.0, other.rollback).start()
        rows = at_once(TOUCH, named("first", "Ulysses", "Emma"), monkeypatch)
    assert rows == [("Ulysses",), ("Emma",)]


def test_a_row_that_is_not_there_is_none_of_that_one_alone(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = named("first", "Ulysses", "Emma", "Lolita")
    assert at_once(TOUCH, asked, monkeypatch) == [None, ("Emma",), None]


def test_a_question_of_many_gives_each_its_own_row(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("Ulysses")
    asked = [("Emma", "x"), ("Ulysses", "x"), ("Lolita", "x"), ("Emma", "Emma"), ("Emma", "x")]
    rows = at_once(FIND, asked, monkeypatch)
    assert rows == [("Ulysses",), None, None, ("Emma",)]
    assert [FIND.row(each) for each in asked] == [("Emma",), *rows]


def test_a_statement_is_part_of_the_transaction_around_it(table: None) -> None:
    def put_and_fail() -> None:
        with transaction.atomic():
            assert PUT.row({"book": "Ulysses"})
            raise ValueError

    with pytest.raises(ValueError):
        put_and_fail()
    assert books() == ["Emma"]


def test_groups_that_lock_the_same_rows_never_wait_for_each_other(table: None) -> None:
    titles = ["Emma", "Persuasion", "Ulysses", "Dracula"]
    for title in titles[1:]:
        put(title)
    # As two processes that serve at the same time.
    one, other = (Statement(TOUCH.text, order=itemgetter("book")) for _ in range(2))

    def touch(statement: Statement, titles: list[str]) -> set[tuple[Any, ...] | None]:
        return {statement.row({"book": title}) for title in 50 * titles}

    before = deadlocks()
    asked = race(
        *[partial(touch, one, titles[n:] + titles[:n]) for n in range(4)],
        *[partial(touch, other, titles[n::-1] + titles[:n:-1]) for n in range(4)],
    )
    assert asked == [{(title,) for title in titles}] * 8
    assert deadlocks() == before


def deadlocks() -> int:
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as other:
        other.execute("SELECT pg_stat_force_next_flush()")
        row = other.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_who_shares_a_connection_with_a_transaction_that_is_taken_back_asks_on(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg then has the server forget all that it has prepared, whoever had."""

    def take_back() -> None:
        with transaction.atomic():
            put("Ulysses")
            raise ValueError

    for asked in named("Dracula", "Persuasion"):
        assert PUT.row(asked)
        assert at_once(TOUCH, named("Emma", "Emma", "Dracula"), monkeypatch)
        with pytest.raises(ValueError):
            take_back()
        release_connection()
    assert books() == ["Dracula", "Emma", "Persuasion"]


def test_one_that_ends_in_the_middle_of_a_group_fails_all_and_is_not_asked_twice(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = Statement(
        """
        INSERT INTO shelf SELECT %(book)s::text FROM pg_stat_activity WHERE pid = pg_backend_pid()
        AND (%(book)s::text <> 'last' OR pg_terminate_backend(pid)) RETURNING book
        """
    )
    asked = named("first", "Ulysses", "last", "Dracula")
    ended = at_once(last, asked, monkeypatch)
    assert [type(each) for each in ended] == [OperationalError] * 3
    assert books() == ["Emma", "first"]


@pytest.mark.parametrize("several", [1, 3])
def test_where_nothing_may_be_prepared_nothing_is(
    table: None, monkeypatch: pytest.MonkeyPatch, several: int
) -> None:
    """As behind some poolers."""
    settings = connection.settings_dict["OPTIONS"]
    monkeypatch.setitem(settings, "prepare_threshold", None)
    close_pool()
    asked = named("first", "Ulysses", "Dracula", "Persuasion")[: several + 1]
    assert [row[0] for row in at_once(PUT, asked, monkeypatch)] == [
        each["book"] for each in asked[1:]
    ]
    with prepared() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements")
        assert cursor.fetchone() == (0,)
    close_pool()


def test_what_a_pooler_says_of_a_lost_connection_is_no_refusal(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may have done what it was asked before the pooler lost it."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            CREATE FUNCTION lose(book text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
            IF book = 'lost' THEN RAISE EXCEPTION 'server conn crashed' USING ERRCODE = '08P01'; END IF;
            RETURN book; END $$
            """
        )
    release_connection()
    put_or_lose = Statement("INSERT INTO shelf VALUES (lose(%(book)s)) RETURNING book")
    asked = named("first", "Ulysses", "lost", "Dracula")
    assert [type(each) for each in at_once(put_or_lose, asked, monkeypatch)] == [
        OperationalError
    ] * 3
    assert books() == ["Emma", "first"]
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION lose")


def test_where_no_connection_is_to_be_had_nobody_waits_for_one_twice(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[None] = []

    @contextmanager
    def none_left() -> Iterator[Any]:
        tried.append(None)
        raise OperationalError("couldn't get a connection")
        yield

    monkeypatch.setattr(statements, "borrowed", none_left)
    ended = at_once(PUT, named("first", "Ulysses", "Dracula", "Persuasion"), monkeypatch)
    assert [type(each) for each in ended] == [OperationalError] * 3
    assert len(tried) == 2


def test_what_is_left_to_tidy_up_is_not_done_behind_what_has_been_committed(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of that would be taken for one of the group, which would be done again."""
    tidied: list[None] = []
    tidy = PrepareManager.maintain_gen

    def fail_for_the_group(self: PrepareManager, conn: Any) -> Any:
        tidied.append(None)
        if len(tidied) == 2:
            raise psycopg.errors.QueryCanceled
        return tidy(self, conn)

    # From here on there is a connection, so that the first is for who goes alone and the second for the others.
    assert books() == ["Emma"]
    monkeypatch.setattr(PrepareManager, "maintain_gen", fail_for_the_group)
    rows = at_once(PUT, named("first", "Lolita", "Persuasion"), monkeypatch)
    assert [row[0] for row in rows] == ["Lolita", "Persuasion"]
    assert len(tidied) > 2
    assert books() == ["Emma", "Lolita", "Persuasion", "first"]


@pytest.mark.parametrize("threshold", [0, 1, 2, 3])
def test_a_group_that_fails_leaves_no_name_of_what_was_not_prepared(
    table: None, monkeypatch: pytest.MonkeyPatch, threshold: int
) -> None:
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "prepare_threshold", threshold)
    close_pool()
    asked = named("first", "Emma", "Dracula", "Persuasion", "Ulysses")
    refused, *others = at_once(PUT, asked, monkeypatch)
    assert isinstance(refused, IntegrityError)
    assert [row[0] for row in others] == ["Dracula", "Persuasion", "Ulysses"]
    assert PUT.row({"book": "Lolita"})
    close_pool()


def test_a_statement_means_the_same_in_a_transaction_and_outside_of_any() -> None:
    with pytest.raises(AssertionError):
        Statement("SELECT 1 WHERE %s LIKE 'x%%'")
