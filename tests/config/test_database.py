"""Statements that are asked all the time, on connections that are borrowed for them."""

import psycopg
import pytest
from django.db import IntegrityError, OperationalError, connection, transaction

from tests.config.shelf import books, put, shelf

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def table():
    with shelf():
        yield


def test_nothing_is_held_between_two_statements(table: None) -> None:
    assert books() == ["Emma"]
    assert connection.connection is None


def test_each_statement_is_a_transaction_where_there_is_none(table: None) -> None:
    put("Ulysses")
    with psycopg.connect(**connection.get_connection_params()) as other:
        assert other.execute("SELECT count(*) FROM shelf").fetchone() == (2,)


def test_it_belongs_to_the_transaction_around_it(table: None) -> None:
    def put_and_fail() -> None:
        with transaction.atomic():
            put("Ulysses")
            assert books() == ["Emma", "Ulysses"]
            raise ValueError

    with pytest.raises(ValueError):
        put_and_fail()
    assert books() == ["Emma"]


def test_its_errors_are_those_of_the_framework_and_cost_no_connection(table: None) -> None:
    for _ in range(20):
        with pytest.raises(IntegrityError):
            put("Emma")
    assert books() == ["Emma"]


def test_a_column_that_changes_its_type_costs_one_question(table: None) -> None:
    assert books() == ["Emma"]
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as other:
        other.execute("ALTER TABLE shelf ALTER book TYPE varchar(20)")
    with pytest.raises(OperationalError):
        books()
    for _ in range(5):
        assert books() == ["Emma"]
