"""Requires the encoding UTF8 of the database: no other can store every script and emoji."""

from contextlib import suppress

import psycopg
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, connections

from config.platform.db.checks import of_each_database

NEEDED = "UTF8"
_HINT = "Create one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and restore a dump into it."


@of_each_database
def database_is_utf8(alias: str) -> list[checks.CheckMessage]:
    """Reports a database of another encoding."""
    fault = _fault(alias)
    return [checks.Error(fault, hint=_HINT, id="config.E001")] if fault else []


def refuse_other_encodings() -> None:
    """Stops the start of a process at a database of another encoding. An unavailable one is not refused."""
    with suppress(psycopg.Error):
        if fault := _fault(DEFAULT_DB_ALIAS):
            raise SystemExit(f"{fault} {_HINT}")


def _fault(alias: str) -> str:
    """Queries on a separate connection and closes it: forked processes must not share one."""
    database = connections[alias]
    # A process without a database has Django's placeholder here.
    if database.vendor != "postgresql":
        return ""
    with psycopg.connect(**database.get_connection_params()) as connection:
        encoding, name = connection.info.parameter_status("server_encoding"), connection.info.dbname
    # A pooler may not report it.
    if encoding in {None, NEEDED}:
        return ""
    return f"The database {name} has the encoding {encoding}; it must be {NEEDED}."
