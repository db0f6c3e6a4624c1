"""An index whose building was interrupted is told of, with what removes it."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO

import psycopg
import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection

from tests.tools.owners import SERVICE
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS = 60


@pytest.fixture
def table() -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute('CREATE TABLE "Scratch" (number int)')
        yield '"Scratch"'
        cursor.execute('DROP TABLE "Scratch"')


def another() -> psycopg.Connection:
    given = connection.get_connection_params()
    return psycopg.connect(
        **{
            name: given[name]
            for name in ("dbname", "user", "password", "host", "port")
            if name in given
        },
        autocommit=True,
    )


def checked() -> str:
    """Returns the output of the check of a deployment, "" where it finds nothing."""
    out = StringIO()
    try:
        call_command("check", database=["default"], fail_level="WARNING", stdout=out, stderr=out)
    except SystemCheckError as refusal:
        return str(refusal)
    return ""


def test_the_check_names_interrupted_indexes_and_none_being_built(table: str) -> None:
    with another() as writer, another() as builder, connection.cursor() as cursor:
        # The building waits for whoever wrote before it began.
        writer.execute("BEGIN")
        writer.execute(f"INSERT INTO {table} VALUES (1)")
        build = threading.Thread(target=_build, args=(builder, table))
        build.start()
        try:
            _wait_until_built(builder.info.backend_pid)
            assert checked() == ""
            cursor.execute(f"SET ROLE {SERVICE}")
            assert checked() == ""
        finally:
            cursor.execute("RESET ROLE")
            cursor.execute("SELECT pg_cancel_backend(%s)", [builder.info.backend_pid])
            build.join(SECONDS)
        assert not build.is_alive()
    found = checked()
    assert '(config.W001) The index public."Scratch_number" is invalid' in found
    assert 'DROP INDEX CONCURRENTLY public."Scratch_number"; then manage.py migrate' in found
    with connection.cursor() as cursor:
        cursor.execute('DROP INDEX CONCURRENTLY public."Scratch_number"')
    assert checked() == ""


def test_a_migration_warns_of_an_index_that_could_not_be_built(
    table: str,
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} VALUES (1), (1)")
    with another() as builder, pytest.raises(psycopg.errors.UniqueViolation):
        builder.execute(f'CREATE UNIQUE INDEX CONCURRENTLY "Scratch_number" ON {table} (number)')
    told = StringIO()
    call_command("migrate", skip_checks=False, stdout=told, stderr=told)
    assert "DROP INDEX CONCURRENTLY public" in told.getvalue()
    assert "No migrations to apply" in told.getvalue()


def _build(builder: psycopg.Connection, table: str) -> None:
    with suppress(psycopg.errors.QueryCanceled):
        builder.execute(f'CREATE INDEX CONCURRENTLY "Scratch_number" ON {table} (number)')


def _wait_until_built(pid: int) -> None:
    """Until there is an index that is not valid, and that is being built by this process."""

    def is_built() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT FROM pg_stat_progress_create_index AS built"
                " JOIN pg_index AS index ON index.indexrelid = built.index_relid"
                " WHERE built.pid = %s AND NOT index.indisvalid",
                [pid],
            )
            return cursor.fetchone() is not None

    eventually(is_built)
