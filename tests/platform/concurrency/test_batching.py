"""Executions of one statement that meet go as one transaction, and none fails because of another."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from threading import Barrier, Event
from time import sleep
from typing import Any

import psycopg
import pytest
from django.db import DataError, IntegrityError, OperationalError, connection, transaction

from config.platform.concurrency import batches, batching
from config.platform.concurrency.batching import BatchedLookup, BatchedStatement
from config.platform.db import connections as waits
from config.platform.db.connections import close_pool, release_connection
from tests.platform.db.shelf import books, put, shelf
from tests.races import race
from tests.tools.folders import ROOT
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS = 60.0
BY_BOOK = itemgetter("book")


@pytest.fixture(autouse=True)
def _slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that needs a timeout sets it itself."""
    monkeypatch.setattr(batches, "WAIT_SECONDS", SECONDS)
    monkeypatch.setattr(batching, "AWAY_SECONDS", SECONDS)


@pytest.fixture
def table():
    with shelf():
        yield


@pytest.fixture
def options(table: None) -> Iterator[dict[str, Any]]:
    """The options of the pool that the test makes; no later test gets that pool."""
    given = connection.settings_dict["OPTIONS"]
    changed = {**given, "pool": dict(given["pool"])}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connection.settings_dict, "OPTIONS", changed)
        yield changed
    close_pool()


PUT = BatchedStatement(
    "INSERT INTO shelf VALUES (%(book)s) RETURNING book, pg_current_xact_id()::text", order=BY_BOOK
)
TOUCH = BatchedStatement(
    "UPDATE shelf SET book = book WHERE book = %(book)s RETURNING book", order=BY_BOOK
)
FIND = BatchedStatement("SELECT book FROM shelf WHERE book = %s AND book <> %s")

LOOK_UP = BatchedLookup(
    """
SELECT book, asked.other, statement_timestamp(), asked.place
FROM (VALUES KEYS) AS asked(book, other, place) JOIN shelf USING (book)
""",
    ["text", "text"],
)


def named(*books: str) -> list[dict[str, str]]:
    return [{"book": book} for book in books]


def meeting(
    statement: BatchedStatement, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    """The row or error of each but the first, which are asked in this order while the first is in flight."""
    monkeypatch.setattr(batches, "PATIENCE_SECONDS", SECONDS)
    with (
        ThreadPoolExecutor(len(asked)) as pool,
        psycopg.connect(**connection.get_connection_params()) as other,
    ):
        other.execute("LOCK TABLE shelf")
        first = pool.submit(_in_thread, statement, asked[0])
        eventually(lambda: _waits_for(other))
        asking = []
        for values in asked[1:]:
            asking.append(pool.submit(_in_thread, statement, values))
            eventually(lambda: len(statement.waiting) == len(asking))
        other.rollback()
        first.exception(SECONDS)
        return [each.exception(SECONDS) or each.result() for each in asking]


def _in_thread(statement: BatchedStatement, values: Any) -> Any:
    try:
        return statement.row(values)
    finally:
        release_connection()


def _waits_for(holder: psycopg.Connection[Any]) -> bool:
    return _waiting_for(holder) > 0


def _waiting_for(holder: psycopg.Connection[Any]) -> int:
    holder.execute("SELECT pg_stat_clear_snapshot()")
    row = holder.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_an_execution_that_comes_alone_goes_alone(table: None) -> None:
    assert [PUT.row(each) for each in named("Ulysses", "Dracula")]
    assert books() == ["Dracula", "Emma", "Ulysses"]


def test_executions_that_meet_are_one_transaction(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = meeting(PUT, named("first", "Ulysses", "Dracula", "Persuasion"), monkeypatch)
    assert [row[0] for row in rows] == ["Ulysses", "Dracula", "Persuasion"]
    assert len({row[1] for row in rows}) == 1
    assert books() == ["Dracula", "Emma", "Persuasion", "Ulysses", "first"]
    assert connection.connection is not None


def test_a_batch_has_a_limit(table: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST", 2)
    rows = meeting(PUT, named("first", "Ulysses", "Dracula", "Persuasion"), monkeypatch)
    assert rows[0][1] == rows[1][1] != rows[2][1]


def test_an_execution_that_is_refused_costs_the_others_nothing(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, refused, other = meeting(PUT, named("first", "Ulysses", "Emma", "Persuasion"), monkeypatch)
    assert isinstance(refused, IntegrityError)
    assert (one[0], other[0]) == ("Ulysses", "Persuasion")
    assert books() == ["Emma", "Persuasion", "Ulysses", "first"]


@pytest.mark.parametrize("impossible", ["z\0b", "z\ud800b", object()])
def test_values_that_cannot_be_sent_fail_their_own_caller_alone(
    table: None, monkeypatch: pytest.MonkeyPatch, impossible: Any
) -> None:
    asked = [*named("first", "Ulysses", "Dracula"), {"book": impossible}, *named("Persuasion")]
    one, two, refused, other = meeting(PUT, asked, monkeypatch)
    assert isinstance(refused, Exception)
    assert (one[0], two[0], other[0]) == ("Ulysses", "Dracula", "Persuasion")
    assert books() == ["Dracula", "Emma", "Persuasion", "Ulysses", "first"]


def test_a_refusal_at_the_commit_costs_the_others_nothing(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE shelf ADD after varchar(10) REFERENCES shelf DEFERRABLE INITIALLY DEFERRED"
        )
    release_connection()
    put = BatchedStatement(
        "INSERT INTO shelf VALUES (%(book)s, %(after)s) RETURNING book", order=BY_BOOK
    )
    asked = [{"book": "first", "after": None}]
    asked += [{"book": "Ulysses", "after": "Emma"}, {"book": "Dracula", "after": "Nobody"}]
    one, refused = meeting(put, asked, monkeypatch)
    assert one == ("Ulysses",)
    assert isinstance(refused, IntegrityError)
    assert books() == ["Emma", "Ulysses", "first"]


def test_a_row_that_cannot_be_decoded_fails_its_own_caller_alone(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = "CASE book WHEN 'Lolita' THEN timestamptz 'infinity' END"
    put = BatchedStatement(
        f"INSERT INTO shelf VALUES (%(book)s) RETURNING book, {until}", order=BY_BOOK
    )
    asked = named("first", "Ulysses", "Lolita", "Dracula")
    one, unreadable, other = meeting(put, asked, monkeypatch)
    assert (one, other) == (("Ulysses", None), ("Dracula", None))
    assert isinstance(unreadable, DataError)
    # It has been done all the same, as for an execution that goes alone.
    assert books() == ["Dracula", "Emma", "Lolita", "Ulysses", "first"]

    find = BatchedStatement(f"SELECT book, {until} FROM shelf WHERE book = %s")
    titles = [("first",), ("Ulysses",), ("Lolita",), ("a\0b",), ("Dracula",)]
    one, unreadable, impossible, other = meeting(find, titles, monkeypatch)
    assert (one, other) == (("Ulysses", None), ("Dracula", None))
    assert isinstance(unreadable, DataError)
    assert isinstance(impossible, DataError)


def test_keys_that_meet_are_looked_up_by_one_execution(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("Ulysses")
    keys = [("Emma", "a"), ("Ulysses", "b"), ("Lolita", "c"), ("Ulysses", "d")]
    one, missing, same = meeting(LOOK_UP, keys, monkeypatch)
    assert (one[:2], missing, same[:2]) == (("Ulysses", "b"), None, ("Ulysses", "d"))
    assert one[2] == same[2]
    with transaction.atomic():
        assert [bool(LOOK_UP.row(each)) for each in keys[1:3]] == [True, False]


def test_a_key_that_cannot_be_sent_fails_its_own_caller_alone(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [("first", "a"), ("Emma", "b"), ("a\0b", "c")]
    one, impossible = meeting(LOOK_UP, keys, monkeypatch)
    assert one[:2] == ("Emma", "b")
    assert isinstance(impossible, DataError)


def test_a_locked_row_is_waited_for_by_its_own_caller_alone(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("Ulysses", "Dracula")
    # The lock is held on until the others have their rows.
    with psycopg.connect(**connection.get_connection_params()) as holder:
        holder.execute("SELECT book FROM shelf WHERE book = 'Emma' FOR UPDATE")
        with ThreadPoolExecutor(3) as pool:
            waits = pool.submit(_in_thread, TOUCH, {"book": "Emma"})
            eventually(lambda: _waits_for(holder))
            others = [pool.submit(_in_thread, TOUCH, each) for each in named("Ulysses", "Dracula")]
            assert [each.result(SECONDS) for each in others] == [("Ulysses",), ("Dracula",)]
            assert not waits.done()
            holder.rollback()
            assert waits.result(SECONDS) == ("Emma",)


def test_a_batch_with_a_locked_row_is_taken_apart(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("Ulysses")
    with psycopg.connect(**connection.get_connection_params()) as holder:
        # Two waits of which the second begins when the table is free again.
        rows = []

        def ask() -> None:
            rows.extend(meeting(TOUCH, named("first", "Ulysses", "Emma"), monkeypatch))

        holder.execute("SELECT book FROM shelf WHERE book = 'Emma' FOR KEY SHARE")
        holder.rollback()
        ask()
    assert rows == [("Ulysses",), ("Emma",)]


def test_a_row_that_is_not_there_is_none_for_its_own_caller_alone(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = named("first", "Ulysses", "Emma", "Lolita")
    assert meeting(TOUCH, asked, monkeypatch) == [None, ("Emma",), None]


def test_each_caller_of_a_query_gets_its_own_row(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("Ulysses")
    asked = [("Emma", "x"), ("Ulysses", "x"), ("Lolita", "x"), ("Emma", "Emma"), ("Emma", "x")]
    rows = meeting(FIND, asked, monkeypatch)
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


def test_batches_that_lock_the_same_rows_never_wait_for_each_other(table: None) -> None:
    titles = ["Emma", "Persuasion", "Ulysses", "Dracula"]
    put(*titles[1:])
    # As two processes that serve at the same time.
    one, other = (BatchedStatement(TOUCH.text, order=BY_BOOK) for _ in range(2))

    def touch(statement: BatchedStatement, titles: list[str]) -> set[tuple[Any, ...] | None]:
        return {statement.row({"book": title}) for title in 50 * titles}

    before = deadlocks()
    asked = race(
        *[partial(touch, one, titles[n:] + titles[:n]) for n in range(4)],
        *[partial(touch, other, titles[n::-1] + titles[:n:-1]) for n in range(4)],
    )
    assert asked == [{(title,) for title in titles}] * 8
    assert deadlocks() == before
    assert not one.waiting


def deadlocks() -> int:
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as other:
        other.execute("SELECT pg_stat_force_next_flush()")
        row = other.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_a_rollback_on_a_shared_connection_costs_nobody_a_prepared_statement(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg then has the server forget all prepared statements."""

    def take_back() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("INSERT INTO shelf VALUES ('Ulysses')")
            raise ValueError

    for asked in named("Dracula", "Persuasion"):
        assert PUT.row(asked)
        release_connection()
        assert meeting(TOUCH, named("Emma", "Emma", "Dracula"), monkeypatch)
        with pytest.raises(ValueError):
            take_back()
        release_connection()
    assert books() == ["Dracula", "Emma", "Persuasion"]


def test_a_connection_that_ends_in_mid_batch_fails_all_and_nothing_is_repeated(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = BatchedStatement(
        """
        INSERT INTO shelf SELECT %(book)s::text
        WHERE %(book)s::text <> 'last' OR pg_terminate_backend(pg_backend_pid()) RETURNING book
        """,
        order=BY_BOOK,
    )
    asked = named("first", "Ulysses", "last", "Dracula")
    ended = meeting(last, asked, monkeypatch)
    assert [type(each) for each in ended] == [OperationalError] * 3
    assert books() == ["Emma", "first"]
    assert last.row({"book": "Lolita"}) == ("Lolita",)


@pytest.mark.parametrize("several", [1, 3])
def test_nothing_is_prepared_where_nothing_may_be(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, several: int
) -> None:
    """As behind some poolers."""
    options["prepare_threshold"] = None
    asked = named("first", "Ulysses", "Dracula", "Persuasion")[: several + 1]
    rows = meeting(PUT, asked, monkeypatch)
    assert [row[0] for row in rows] == [each["book"] for each in asked[1:]]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements")
        assert cursor.fetchone() == (0,)


def test_a_lost_connection_that_a_pooler_reports_is_no_refusal(
    table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may have done its work before the pooler lost it."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            CREATE FUNCTION lose(book text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
            IF book = 'lost' THEN RAISE EXCEPTION 'server conn crashed' USING ERRCODE = '08P01'; END IF;
            RETURN book; END $$
            """
        )
    release_connection()
    put_or_lose = BatchedStatement(
        "INSERT INTO shelf VALUES (lose(%(book)s)) RETURNING book", order=BY_BOOK
    )
    asked = named("first", "Ulysses", "lost", "Dracula")
    ended = meeting(put_or_lose, asked, monkeypatch)
    assert [type(each) for each in ended] == [OperationalError] * 3
    assert books() == ["Emma", "first"]
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION lose")


def test_a_statement_whose_result_changes_its_type_is_refused_once(table: None) -> None:
    assert FIND.row(("Emma", "x"))
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as other:
        other.execute("ALTER TABLE shelf ALTER book TYPE varchar(20)")
    with pytest.raises(OperationalError):
        FIND.row(("Emma", "x"))
    for _ in range(5):
        assert FIND.row(("Emma", "x")) == ("Emma",)


@pytest.mark.parametrize("threshold", [0, 1, 2, 3])
def test_a_batch_that_fails_leaves_no_name_of_a_statement_that_was_not_prepared(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, threshold: int
) -> None:
    options["prepare_threshold"] = threshold
    asked = named("first", "Emma", "Dracula", "Persuasion", "Ulysses")
    refused, *others = meeting(PUT, asked, monkeypatch)
    assert isinstance(refused, IntegrityError)
    assert [row[0] for row in others] == ["Dracula", "Persuasion", "Ulysses"]
    assert PUT.row({"book": "Lolita"})


def test_many_at_once_all_get_their_own(table: None) -> None:
    titles = [str(number) for number in range(400)]
    with ThreadPoolExecutor(16) as pool:
        rows = list(pool.map(partial(_in_thread, PUT), named(*titles)))
    assert [row[0] for row in rows] == titles
    assert len(books()) == 401
    assert not PUT.waiting


def test_executions_that_wait_hold_no_connection_that_their_leader_needs(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    options["pool"]["max_size"] = 3
    monkeypatch.setattr(batches, "PATIENCE_SECONDS", SECONDS)
    may_end = Event()

    def put_and_keep() -> Any:
        row = PUT.row({"book": "first"})
        may_end.wait(SECONDS)
        release_connection()
        return row

    def connect_and_put(book: str) -> Any:
        connection.ensure_connection()
        return _in_thread(PUT, {"book": book})

    with (
        ThreadPoolExecutor(4) as pool,
        psycopg.connect(**connection.get_connection_params()) as other,
    ):
        other.execute("LOCK TABLE shelf")
        first = pool.submit(put_and_keep)
        eventually(lambda: _waits_for(other))
        asking = [pool.submit(_in_thread, PUT, {"book": "leader"})]
        eventually(lambda: len(PUT.waiting) == 1)
        asking += [pool.submit(connect_and_put, book) for book in ("Ulysses", "Dracula")]
        eventually(lambda: len(PUT.waiting) == 3)
        other.rollback()
        try:
            assert all(each.result(SECONDS) for each in asking)
        finally:
            may_end.set()
        assert first.result(SECONDS)


@contextmanager
def all_connections_in_use(options: dict[str, Any]) -> Iterator[Event]:
    """The pool has one, which somebody keeps until the event is set, and little patience."""
    options["pool"] |= {"max_size": 1, "timeout": 0.2}
    assert FIND.row(("Emma", "x"))
    release_connection()
    is_kept, may_end = Event(), Event()

    def keep() -> None:
        connection.ensure_connection()
        is_kept.set()
        may_end.wait(SECONDS)
        release_connection()

    with ThreadPoolExecutor(1) as pool:
        keeping = pool.submit(keep)
        assert is_kept.wait(SECONDS)
        try:
            yield may_end
        finally:
            may_end.set()
            keeping.result(SECONDS)


def test_executions_wait_on_while_all_connections_are_in_use(options: dict[str, Any]) -> None:
    with all_connections_in_use(options) as may_end, ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(_in_thread, PUT, each) for each in named(*"abcdefgh")]
        sleep(1)
        assert not any(each.done() for each in asking)
        may_end.set()
        assert [each.result(SECONDS)[0] for each in asking] == list("abcdefgh")


def test_nothing_is_done_for_an_execution_that_has_waited_too_long(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "WAIT_SECONDS", 0.5)
    with all_connections_in_use(options), ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(_in_thread, PUT, each) for each in named("Dracula", "Ulysses")]
        ended = [each.exception(SECONDS) for each in asking]
    assert [type(each) for each in ended] == [OperationalError] * 2
    assert PUT.row({"book": "Lolita"})
    assert books() == ["Emma", "Lolita"]


def test_all_who_wait_fail_at_once_where_the_server_is_away(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "AWAY_SECONDS", 0.0)
    real, tries = batching.borrowed, []

    def borrowed(given: Any) -> Any:
        eventually(lambda: len(PUT.waiting) == 8)
        tries.append(True)
        return real(given)

    with all_connections_in_use(options), ThreadPoolExecutor(8) as pool:
        monkeypatch.setattr(batching, "borrowed", borrowed)
        asking = [pool.submit(_in_thread, PUT, each) for each in named(*"abcdefgh")]
        ended = [each.exception(SECONDS) for each in asking]
    assert len(tries) == 1
    assert [type(each) for each in ended] == [OperationalError] * 8
    assert books() == ["Emma"]


def test_an_execution_fails_fast_after_a_batch_that_timed_out(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST", 1)
    monkeypatch.setattr(batching, "AWAY_SECONDS", 1.0)
    # The server itself would say something after ten seconds; nobody waits for that.
    monkeypatch.setattr(waits, "MARGIN_SECONDS", -8.0)
    options["options"] = "-c statement_timeout=10s"
    close_pool()
    with (
        ThreadPoolExecutor(6) as pool,
        psycopg.connect(**connection.get_connection_params()) as other,
    ):
        other.execute("LOCK TABLE shelf")
        all_here = Barrier(6)

        def ask(values: Any) -> Any:
            all_here.wait(SECONDS)
            return _in_thread(PUT, values)

        asking = [pool.submit(ask, each) for each in named(*"abcdef")]
        ended = [each.exception(SECONDS) for each in asking]
    assert [type(each) for each in ended] == [OperationalError] * 6
    # On a slow machine not all of the four flights leave before the first has waited too long.
    assert sum("does not answer" in str(each) for each in ended) >= 6 - batches.MOST_IN_FLIGHT
    assert books() == ["Emma"]


def test_a_statement_has_four_flights_at_most(table: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST", 1)
    with (
        ThreadPoolExecutor(8) as pool,
        psycopg.connect(**connection.get_connection_params()) as other,
    ):
        other.execute("LOCK TABLE shelf")
        asking = [pool.submit(_in_thread, PUT, each) for each in named(*"abcdefgh")]
        eventually(lambda: _waiting_for(other) == batches.MOST_IN_FLIGHT)
        sleep(4 * batches.PATIENCE_SECONDS)
        assert _waiting_for(other) == batches.MOST_IN_FLIGHT == 4
        other.rollback()
        assert {each.result(SECONDS)[0] for each in asking} == set("abcdefgh")


def test_a_killed_greenlet_takes_no_other_along() -> None:
    """Threads cannot be killed, so a process with greenlets reports it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.platform.concurrency.killed_in_flight"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    assert json.loads(done.stdout) == {
        "waiting": [2, "GreenletExit", 6, 8],
        "in flight": [2, "GreenletExit", 6, 8],
        "acquiring": 14,
    }
