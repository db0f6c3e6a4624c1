"""Squashed migrations make what those before them made, and need all of them (docs/adr/0074-squashed-migrations.md)."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial

import psycopg
import pytest
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from pytest_django.plugin import DjangoDbBlocker

from tests.served.database import Database, new_database
from tests.served.service import manage
from tests.served.test_upgrade import restore
from tests.tools.folders import ROOT
from tests.tools.owners import as_superuser
from tests.tools.postgres import MIGRATED, pg_dump, psql

pytestmark = pytest.mark.full

# A superuser made it there, with a setting; a later migration makes it anew for all.
PRUNING = re.compile(r"CREATE FUNCTION public\.accounts_prune_audit.*?\$\$;\n", re.DOTALL)
SEEDED = (
    "SELECT name FROM auth_group ORDER BY name",
    "SELECT monthly_input_tokens, monthly_output_tokens, is_default FROM licensing_plan WHERE name = 'Starter'",
    "SELECT name, base_url, is_on, dialect FROM llmproxy_provider WHERE name = 'default'",
    "SELECT oid::regprocedure::text, proowner::regrole::text FROM pg_proc WHERE pronamespace = 2200 ORDER BY 1",
)
REFUSED = (
    "CommandError: This database is of a release before 1.0.0: run `manage.py migrate` of version 1.0.0 first, "
    "then this one."
)
COMMANDS = (
    "migrate", "migrate --plan", "migrate usage", "migrate telemetry zero", "migrate --fake",
    "showmigrations", "showmigrations --plan", "showmigrations licensing",
    "createsuperuser --noinput --email owner@shell.test",
)  # fmt: skip
# The migrations that a database of an older release lacks.
MISSING = (
    "app = 'accounts' AND name >= '0019' AND name < '0027'",
    "app = 'telemetry' AND name = '0003_daily_volumes'",
    "app = 'usage' AND name <> '0001_initial'",
    "app = 'licensing' AND name = '0002_starter_plan'",
)
NewDatabase = Callable[..., AbstractContextManager[Database]]


@pytest.fixture
def new(django_db_blocker: DjangoDbBlocker) -> NewDatabase:
    return partial(new_database, django_db_blocker.unblock)


@pytest.fixture(params=["1f2697d", "213cb5a1"])
def before(request: pytest.FixtureRequest, new: NewDatabase) -> Iterator[Database]:
    """A database that a release before the squash made."""
    with new() as database:
        restore(database.url, request.param, datetime.now(UTC))
        yield database


@pytest.fixture
def newest(new: NewDatabase) -> Iterator[Database]:
    with new(like=MIGRATED) as database:
        yield database


def dumped(database: Database, *options: str) -> str:
    """Dumps it without privileges, which the recorded databases had left out."""
    command = [pg_dump(), "--no-privileges", "--restrict-key=same", *options, database.url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def schema(database: Database, new: NewDatabase) -> str:
    """As it is once restored from a dump: PostgreSQL writes some conditions in another way then, as it has once."""
    with new() as copy:
        command = [psql(), "-qX", "-v", "ON_ERROR_STOP=1", as_superuser(copy.url)]
        given = dumped(database, "--schema-only").replace("CREATE SCHEMA public;", "")
        subprocess.run(command, input=given, stdout=subprocess.DEVNULL, text=True, check=True)
        return dumped(copy, "--schema-only")


def read(database: Database, *queries: str) -> list[list[tuple[object, ...]]]:
    with psycopg.connect(database.url) as connection:
        return [connection.execute(query).fetchall() for query in queries]  # type: ignore[arg-type]


def applied(database: Database) -> set[tuple[str, str]]:
    (rows,) = read(database, "SELECT app, name FROM django_migrations")
    return {(str(app), str(name)) for app, name in rows}


def command(database: Database, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database.url},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_new_database_has_the_schema_of_a_release_before(
    before: Database, new: NewDatabase
) -> None:
    squashed = {
        replaced: (each.app_label, each.name)
        for each in MigrationLoader(None).disk_migrations.values()
        for replaced in each.replaces
    }
    with new() as fresh:
        with fresh.rows():
            newest = dict(sorted(squashed.get(each, each) for each in applied(before)))
            MigrationExecutor(connections["default"]).migrate(list(newest.items()))
        made, wanted = (PRUNING.sub("", schema(each, new)) for each in (fresh, before))
    assert made == wanted


def test_a_release_before_becomes_what_a_new_database_is(
    before: Database, newest: Database, new: NewDatabase
) -> None:
    environ = {**os.environ, "DATABASE_URL": before.url}
    manage(environ, "migrate")
    assert "No migrations to apply" in manage(environ, "migrate")
    assert schema(before, new) == schema(newest, new)
    assert read(before, *SEEDED) == read(newest, *SEEDED)
    assert applied(before) == applied(newest)


def test_migrations_go_back_to_none_and_forth(newest: Database) -> None:
    there = dumped(newest, "--schema-only")
    for app in ("telemetry", "releases", "llmproxy", "usage", "licensing"):
        manage({**os.environ, "DATABASE_URL": newest.url}, "migrate", app, "zero")
    assert command(newest, "migrate").returncode == 0
    assert dumped(newest, "--schema-only") == there


# Each starts a process of two seconds: the first command for every history, and each of the others for one.
@pytest.mark.parametrize("place", range(len(MISSING)))
def test_an_older_release_is_refused_and_nothing_is_changed(newest: Database, place: int) -> None:
    with psycopg.connect(newest.url) as connection:
        connection.execute(f"DELETE FROM django_migrations WHERE {MISSING[place]}")  # type: ignore[arg-type]
        connection.execute("DELETE FROM django_migrations WHERE name LIKE '0001_squashed_%'")
    there = dumped(newest)
    first, *others = COMMANDS
    for each in (first, *others[place :: len(MISSING)]):
        done = command(newest, *each.split())
        assert (done.returncode, done.stderr.splitlines()[-1]) == (1, REFUSED), each
    assert dumped(newest) == there
