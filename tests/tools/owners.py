"""Roles of the embedded server: its superuser, who makes databases, and the owner of tables, who is none.

Managed PostgreSQL gives nobody a superuser, so whatever makes or upgrades a schema here does so without one.
"""

from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

SUPERUSER = "postgres"
# The role that owns the tables, and the database of `make run`.
NAME = "shell"
# The role of a service that owns no table; NAME owns them.
SERVICE = "shell_service"
MADE = {NAME: "CREATE ROLE {} LOGIN CREATEDB", SERVICE: "CREATE ROLE {} LOGIN"}
# Of a folder that an earlier version made: renames its superuser, who cannot rename himself.
RENAMER = "shell_renamer"
# Sequences of a column and types of a table go with the table.
OTHERS = """
SELECT 'TABLE ' || oid::regclass FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S') AND relowner <> {owner}::regrole
    AND NOT EXISTS (
        SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype IN ('a', 'i')
            AND refobjsubid > 0
    )
UNION ALL
SELECT 'ROUTINE ' || oid::regprocedure FROM pg_proc
WHERE pronamespace = 'public'::regnamespace AND proowner <> {owner}::regrole
UNION ALL
SELECT 'TYPE ' || pg_type.oid::regtype FROM pg_type LEFT JOIN pg_class ON pg_class.oid = typrelid
WHERE typnamespace = 'public'::regnamespace AND typowner <> {owner}::regrole
    AND (typtype IN ('e', 'd') OR relkind = 'c')
"""


def as_superuser(address: str) -> str:
    """The same database for the superuser, for what an owner of tables may not do."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{SUPERUSER}@{host}").geturl()


def make_roles(address: str) -> None:
    """Makes the roles that are missing on the server of this address, also where NAME has been its superuser."""
    try:
        connected = _connect(as_superuser(address))
    except psycopg.OperationalError:
        _step_down(address)
        connected = _connect(as_superuser(address))
    with connected as superuser:
        found = {name for (name,) in superuser.execute("SELECT rolname FROM pg_roles")}
        if RENAMER in found:
            _run(superuser, "DROP ROLE {}", RENAMER)
        for name in MADE.keys() - found:
            _run(superuser, MADE[name], name)
        member = superuser.execute("SELECT pg_has_role(%s, %s, 'USAGE')", [NAME, SERVICE])
        if member.fetchone() == (False,):
            # So that the owner sees what sessions of the service do, and may end them.
            _run(superuser, "GRANT {} TO {}", SERVICE, NAME)


def hand_over(superuser: psycopg.Connection[Any], owner: str = NAME) -> None:
    """Gives a role the connection's database with all in it. REASSIGN does not take from a server's first role."""
    _run(superuser, "ALTER DATABASE {} OWNER TO {}", superuser.info.dbname, owner)
    others = superuser.execute(sql.SQL(OTHERS).format(owner=sql.Literal(owner))).fetchall()
    for (other,) in others:
        # PostgreSQL has quoted these names.
        _run(superuser, f"ALTER {other} OWNER TO {{}}", owner)


def _step_down(address: str) -> None:
    """Makes the first role of the server SUPERUSER, and gives its name and tables to a new one.

    Killed at any point, the next start goes on from there. Earlier versions find the addresses that they know.
    """
    with _connect(address) as first:
        if not first.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [RENAMER]).fetchone():
            _run(first, "CREATE ROLE {} LOGIN SUPERUSER", RENAMER)
        own = first.execute("SELECT 1 FROM pg_database WHERE datname = %s", [NAME]).fetchone()
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    path = f"/{NAME}" if own else parts.path
    renaming = parts._replace(netloc=f"{RENAMER}@{host}", path=path).geturl()
    with _connect(renaming) as renamer, renamer.transaction():
        _run(renamer, "ALTER ROLE {} RENAME TO {}", NAME, SUPERUSER)
        _run(renamer, MADE[NAME], NAME)
        if own:
            hand_over(renamer)


def _connect(address: str) -> psycopg.Connection[Any]:
    return psycopg.connect(address, autocommit=True)


def _run(connection: psycopg.Connection[Any], statement: str, *names: str) -> None:
    connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
