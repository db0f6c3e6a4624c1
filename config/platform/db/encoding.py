"""The encoding of the database: people write in all scripts and with emoji, which UTF8 alone can hold."""

from contextlib import suppress

import psycopg
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, connections

from config.platform.db.checks import of_each_database

NEEDED = "UTF8"
_HINT = "Make one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and restore a dump into it."


@of_each_database
def database_is_utf8(alias: str) -> list[checks.CheckMessage]:
    """Refuses a database of another encoding."""
    fault = _fault(alias)
    return [checks.Error(fault, hint=_HINT, id="config.E001")] if fault else []


def refuse_other_encodings() -> None:
    """Ends the start of a process at a database of another encoding. One that is away now may answer later."""
    with suppress(psycopg.Error):
        if fault := _fault(DEFAULT_DB_ALIAS):
            raise SystemExit(f"{fault} {_HINT}")


def _fault(alias: str) -> str:
    """Queries on a connection of its own, and closes it: forked processes share none."""
    asked = connections[alias]
    # A part that runs without a database has Django's own placeholder here.
    if asked.vendor != "postgresql":
        return ""
    with psycopg.connect(**asked.get_connection_params()) as connection:
        encoding, name = connection.info.parameter_status("server_encoding"), connection.info.dbname
    # A pooler may not know it.
    if encoding in {None, NEEDED}:
        return ""
    return f"The database {name} has the encoding {encoding}; it must be {NEEDED}."
