"""The two roles of the database: the owner of the tables, who migrates, and the service's, which owns nothing.

The service's password gives access to rows only: its role cannot truncate, alter or drop a table, disable the triggers
that guard the audit log, or delete from it.
"""

from collections.abc import Sequence
from typing import Any

import psycopg
from django.core import checks
from django.db import connections
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from config.platform.db.checks import of_each_database

# For each kind of object: its keyword in statements, and the rights that the service needs.
_RIGHTS = (
    ("TABLE", "SELECT, INSERT, UPDATE, DELETE"),
    ("SEQUENCE", "USAGE, SELECT"),
    ("FUNCTION", "EXECUTE"),
)
# Objects on which the connected role may grant rights, in the schema that it migrates; extensions grant their own.
_OURS = """
SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, oid::regclass::text FROM pg_class
WHERE relkind IN ('r', 'p', 'v', 'm', 'S') AND pg_has_role(relowner, 'USAGE')
    AND relnamespace = quote_ident(current_schema())::regnamespace
    AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e')
UNION ALL
SELECT 'FUNCTION', oid::regprocedure::text FROM pg_proc
WHERE prokind = 'f' AND pronamespace = quote_ident(current_schema())::regnamespace AND pg_has_role(proowner, 'USAGE')
    AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_proc.oid AND deptype = 'e')
ORDER BY 1, 2
"""
_STANDING = """
SELECT current_schema(), current_database(), has_database_privilege(%(role)s, current_database(), 'CONNECT'),
    has_schema_privilege(%(role)s, current_schema(), 'USAGE'),
    has_schema_privilege(%(role)s, current_schema(), 'CREATE')
"""
_TOO_MUCH = """
SELECT relname FROM pg_class
WHERE relkind IN ('r', 'p') AND relnamespace = quote_ident(current_schema())::regnamespace AND (
    pg_has_role(%(role)s, relowner, 'MEMBER') OR has_table_privilege(%(role)s, oid, 'TRUNCATE, TRIGGER')
    OR relname = ANY (%(append_only)s) AND has_table_privilege(%(role)s, oid, 'UPDATE, DELETE')
) ORDER BY 1
"""
_OWNED = """
SELECT current_user, count(*) FROM pg_class
WHERE relkind IN ('r', 'p') AND relnamespace = quote_ident(current_schema())::regnamespace
    AND pg_has_role(relowner, 'MEMBER')
"""


class NotSplit(Exception):
    """An obstacle to the split, and its remedy for an operator."""


def split(
    owner: psycopg.Connection[Any], *, role: str, password: str, append_only: Sequence[str]
) -> list[str]:
    """Makes ``role`` own nothing and use all rows, in present and later tables. Returns the changes.

    Rows of ``append_only`` tables can only be added and read. It is repeatable at any time, while the service runs too.
    """
    with owner.transaction():
        # Concurrent runs would change the same rights.
        owner.execute("SELECT pg_advisory_xact_lock(hashtext('split_database_roles'))")
        done = [_made(owner, role, password), *_taken_over(owner, role)]
        number = _grant(owner, role, append_only)
        if more := _fetch(owner, _TOO_MUCH, role=role, append_only=list(append_only)):
            tables = ", ".join(name for (name,) in more)
            raise NotSplit(f"{role} may do more than work with rows, by other grants: {tables}.")
    return [*done, f"{role} works with the rows of {number} tables and owns none."]


def _made(owner: psycopg.Connection[Any], role: str, password: str) -> str:
    if owner.info.user == role:
        raise NotSplit(f"DATABASE_OWNER_URL names {role}, as DATABASE_URL does: give that another.")
    powers = (
        "SELECT rolsuper OR rolcreaterole OR rolreplication FROM pg_roles WHERE rolname = %(role)s"
    )
    rows = _fetch(owner, powers, role=role)
    if rows and rows[0][0]:
        raise NotSplit(f"{role} is a superuser, or nearly: give DATABASE_URL another role.")
    if rows:
        return f"{role} exists."
    create = sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role))
    if password:
        # A verifier: the server's statement log would record a password.
        verifier = owner.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
        create += sql.SQL(" PASSWORD {}").format(sql.Literal(verifier.decode()))
    try:
        owner.execute(create)
    except InsufficientPrivilege:
        raise NotSplit(
            f"There is no role {role}, and {owner.info.user} cannot create it. "
            f"As a role with CREATEROLE, and then again: CREATE ROLE {role} LOGIN PASSWORD '…';"
        ) from None
    return f"{role} was created."


def _taken_over(owner: psycopg.Connection[Any], role: str) -> list[str]:
    """Transfers ownership from the service's role to the owner."""
    owned = (
        "SELECT count(*) FROM pg_class "
        "WHERE relkind IN ('r', 'p') AND relowner = quote_ident(%(role)s)::regrole"
    )
    [[number]] = _fetch(owner, owned, role=role)
    if not number:
        return []
    names = sql.Identifier(role), sql.Identifier(owner.info.user)
    reassign = sql.SQL("REASSIGN OWNED BY {} TO {}").format(*names)
    grant = sql.SQL("GRANT {} TO {}").format(*names)
    try:
        owner.execute(reassign)
    except InsufficientPrivilege:
        raise NotSplit(
            f"{role} owns tables that {owner.info.user} may not take over. As a superuser, and then again: "
            f"{reassign.as_string(owner)}; or, as the role that made {role}, and then again: "
            f"{grant.as_string(owner)};"
        ) from None
    return [f"{number} tables of {role} belong to {owner.info.user} now."]


def _grant(owner: psycopg.Connection[Any], role: str, append_only: Sequence[str]) -> int:
    """Grants the service's rights and revokes all others; returns the number of tables."""
    [[schema, database, connects, uses, creates]] = _fetch(owner, _STANDING, role=role)
    names = {"role": role, "schema": schema, "database": database}
    if not connects:
        _run(owner, "GRANT CONNECT ON DATABASE {database} TO {role}", **names)
    if not uses:
        _run(owner, "GRANT USAGE ON SCHEMA {schema} TO {role}", **names)
    if creates:
        _run(owner, "REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC, {role}", **names)
    ours = _fetch(owner, _OURS)
    for kind, rights in _RIGHTS:
        later = (
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA {{schema}} GRANT {rights} ON {kind}S TO {{role}}"
        )
        _run(owner, later, **names)
        # PostgreSQL has quoted these names.
        if each := ", ".join(name for its, name in ours if its == kind):
            _run(owner, f"REVOKE ALL ON {kind} {each} FROM {{role}}", **names)
            _run(owner, f"GRANT {rights} ON {kind} {each} TO {{role}}", **names)
    tables = [name for kind, name in ours if kind == "TABLE"]
    for each in set(tables) & set(append_only):
        _run(owner, f"REVOKE UPDATE, DELETE ON TABLE {each} FROM {{role}}", **names)
    return len(tables)


def _run(owner: psycopg.Connection[Any], statement: str, **names: str) -> None:
    identifiers = {name: sql.Identifier(each) for name, each in names.items()}
    owner.execute(sql.SQL(statement).format(**identifiers))


def _fetch(owner: psycopg.Connection[Any], query: str, **values: Any) -> list[tuple[Any, ...]]:
    return owner.execute(query, values).fetchall()


@of_each_database
def service_owns_nothing(alias: str) -> list[checks.CheckMessage]:
    """Warns of a service that owns its tables, for ``check --deploy --database default``."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_OWNED)
        role, number = cursor.fetchone() or ("", 0)
    if not number:
        return []
    return [
        checks.Warning(
            f"The service's role {role} owns {number} tables: it could empty them and switch off their guards.",
            hint="Give DATABASE_URL a role of its own and DATABASE_OWNER_URL this one, then run manage.py "
            "split_database_roles.",
            id="config.W002",
        )
    ]
