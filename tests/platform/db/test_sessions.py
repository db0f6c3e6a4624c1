"""Limits and styles of sessions hold whatever an address, a role or a database sets."""

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import connection
from procrastinate import PsycopgConnector
from procrastinate.contrib.django import connector_params
from psycopg import sql
from pytest_django.plugin import DjangoDbBlocker

from config.platform.db.connections import PooledConnection
from config.platform.db.sessions import with_session
from config.platform.env.addresses import database_url
from tests.served.database import Database, new_database
from tests.tools.folders import ROOT
from tests.tools.owners import NAME, as_superuser
from tests.tools.postgres import MIGRATED

LIMITS = "-c statement_timeout=7s -c lock_timeout=4s -c idle_in_transaction_session_timeout=30s"
SHOWN = ("statement_timeout", "lock_timeout", "search_path")
# An address's text after its name, the effective values of SHOWN, and reports of the like.
ADDRESSES = [
    ("", ["7s", "4s", '"$user", public'], ""),
    ("options=-c%20search_path%3Dpublic", ["7s", "4s", "public"], "cnpj-data-pipeline#80"),
    ("options=-csearch_path%3Dpublic", ["7s", "4s", "public"], ""),
    ("options=--search_path%3Dpublic", ["7s", "4s", "public"], "pgbouncer/pgbouncer#493"),
    ("currentSchema=public", ["7s", "4s", "public"], ""),
    (
        "currentSchema=public&options=-c%20statement_timeout%3D3s",
        ["3s", "4s", "public"],
        "pgjdbc/pgjdbc#4162",
    ),
    (
        "options=-c%20search_path%3Dpublic%20-c%20lock_timeout%3D1s",
        ["7s", "1s", "public"],
        "",
    ),
    (
        "options=-c%20statement_timeout%3D0",
        ["0", "4s", '"$user", public'],
        "neondatabase/neon#2479",
    ),
    ("options=", ["7s", "4s", '"$user", public'], ""),
    ("application_name=shell", ["7s", "4s", '"$user", public'], ""),
]
# Settings that a role, a database or an address may have, and reports of their effects.
STYLES = [
    ("IntervalStyle", "iso_8601", "psycopg/psycopg2#1783"),
    ("IntervalStyle", "sql_standard", "dalibo/pg_activity#445"),
    ("IntervalStyle", "postgres_verbose", ""),
    ("DateStyle", "SQL, DMY", "psycopg/psycopg#571"),
    ("DateStyle", "German", "psycopg/psycopg2#1451"),
    ("DateStyle", "Postgres, YMD", ""),
    ("TimeZone", "Asia/Kolkata", ""),
    ("TimeZone", "America/St_Johns", ""),
    ("bytea_output", "escape", ""),
    ("client_encoding", "LATIN1", ""),
    ("standard_conforming_strings", "off", ""),
    ("extra_float_digits", "-3", ""),
    ("array_nulls", "off", ""),
    ("transform_null_equals", "on", ""),
    ("default_transaction_isolation", "serializable", "inventree/InvenTree#3160"),
    ("default_transaction_isolation", "repeatable read", "aio-libs/aiopg#699"),
]
ASKED = """
SELECT '90 min'::interval, '2026-11-28 02:30+00'::timestamptz, '2026-11-28'::date, 'ü\\x'::text, '\\x00ff'::bytea,
    0.1::float8 + 0.2::float8, '{NULL}'::text[], NULL = NULL, current_setting('transaction_isolation')
"""
READ = (
    timedelta(minutes=90),
    datetime(2026, 11, 28, 2, 30, tzinfo=UTC),
    datetime(2026, 11, 28, tzinfo=UTC).date(),
    "ü\\x",
    b"\x00\xff",
    0.1 + 0.2,
    [None],
    None,
    "read committed",
)


def kwargs(address: str) -> dict[str, object]:
    """As Django gives them to the driver."""
    given = database_url(address)
    named = {"host": given["HOST"], "user": given["USER"], "dbname": given["NAME"]}
    return {**named, **given.get("OPTIONS", {}), "client_encoding": "UTF8"}


@pytest.mark.parametrize(("query", "holds", "reported"), ADDRESSES)
def test_limits_hold_beside_what_an_address_says(
    query: str, holds: list[str], reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGOPTIONS", LIMITS)
    given = kwargs(f"{os.environ['DATABASE_URL']}?{query}")
    with PooledConnection.connect(**given) as opened:
        shown = [opened.execute(f"SHOW {name}").fetchone() for name in SHOWN]
    assert [each[0] for each in shown if each] == holds


@pytest.fixture(scope="module")
def styled() -> Iterator[str]:
    """The address of a role of its own; it owns nothing."""
    address, role = os.environ["DATABASE_URL"], f"styled_{secrets.token_hex(4)}"
    with psycopg.connect(as_superuser(address), autocommit=True) as superuser:
        superuser.execute(f"CREATE ROLE {role} LOGIN")
        yield address.replace(f"//{NAME}@", f"//{role}@")
        superuser.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize(("name", "value", "reported"), STYLES)
@pytest.mark.parametrize("by", ["role", "address"])
def test_values_are_read_whatever_the_style(
    styled: str, name: str, value: str, reported: str, by: str
) -> None:
    given = kwargs(styled)
    if by == "address":
        given["options"] = f"-c {name}={value}".replace(" ", r"\ ").replace(r"-c\ ", "-c ")
    with psycopg.connect(as_superuser(styled), autocommit=True) as superuser:
        role = sql.Identifier(str(given["user"]))
        if by == "role":
            parts = (
                role,
                sql.Identifier(name),
                sql.SQL(value if name == "DateStyle" else repr(value)),
            )
            superuser.execute(sql.SQL("ALTER ROLE {} SET {} = {}").format(*parts))
        try:
            with PooledConnection.connect(**given) as opened:
                assert opened.execute(ASKED).fetchone() == READ
        finally:
            superuser.execute(sql.SQL("ALTER ROLE {} RESET ALL").format(role))


@pytest.mark.django_db(transaction=True)
def test_the_worker_s_own_connections_have_limits_and_styles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c statement_timeout=9s -c IntervalStyle=iso_8601")
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "options", "-c lock_timeout=2s")

    async def ask() -> dict[str, object]:
        connector = PsycopgConnector(kwargs=with_session(connector_params()))
        await connector.open_async()
        try:
            return await connector.execute_query_one_async(
                "SELECT current_setting('statement_timeout') AS statement,"
                " current_setting('lock_timeout') AS lock, '90 min'::interval AS long"
            )
        finally:
            await connector.close_async()

    found = asyncio.run(ask())
    assert found == {"statement": "9s", "lock": "2s", "long": timedelta(minutes=90)}


@pytest.fixture
def odd(django_db_blocker: DjangoDbBlocker) -> Iterator[Database]:
    """A migrated database that has every odd style at once."""
    with new_database(django_db_blocker.unblock, like=MIGRATED) as database:
        with psycopg.connect(as_superuser(database.url), autocommit=True) as superuser:
            for name, value, _ in STYLES:
                said = value if name == "DateStyle" else repr(value)
                superuser.execute(f"ALTER DATABASE {database.name} SET {name} = {said}")
        yield database


def test_commands_work_where_every_style_is_odd(odd: Database, tmp_path) -> None:
    environ = {**os.environ, "DATABASE_URL": odd.url}
    for command in (
        ("migrate", "--no-input"),
        ("seed_demo", "--output", str(tmp_path / "demo.json")),
        ("prune_audit_log",),
        ("nightly",),
    ):
        done = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
