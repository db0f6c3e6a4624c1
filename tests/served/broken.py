"""Ways to break a database under a running service, and to mend it again."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

# Columns that identify a caller: without these nothing gets further than its token.
IDENTITY = frozenset(
    {
        "accounts_user", "accounts_user_groups", "accounts_user_user_permissions", "auth_group",
        "accounts_session", "accounts_client", "accounts_signingkey", "licensing_licence",
        "licensing_plan", "django_session", "django_migrations",
    }
)  # fmt: skip
PATIENCE = 60.0


class Breaker:
    """One database, by a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]

    def tables(self) -> list[str]:
        return [str(name) for (name,) in self._rows(_TABLES)]

    def moment(self) -> int:
        """A mark to ask :meth:`written_since` by."""
        return int(str(self._rows(sql.SQL("SELECT pg_current_xact_id()"))[0][0]))

    def written_since(self, moment: int) -> list[str]:
        """The tables that have rows which are younger than that."""
        some = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE xmin::text::bigint > {})")
        return [
            name
            for name in self.tables()
            if self._rows(some.format(sql.Identifier(name), sql.Literal(moment)))[0][0]
        ]

    def everything(self) -> dict[str, str]:
        """Every row of every table as text."""
        rows = sql.SQL("SELECT t::text FROM {} AS t")
        return {
            name: "\n".join(row for (row,) in self._rows(rows.format(sql.Identifier(name))))
            for name in self.tables()
        }

    def do(self, statement: str) -> None:
        self._rows(sql.SQL(statement))

    @contextmanager
    def without(self, tables: Sequence[str]) -> Iterator[None]:
        """Statements that name these tables fail, and the fault repeats the statement with its values."""
        rename = sql.SQL("ALTER TABLE {} RENAME TO {}")
        named = [(sql.Identifier(each), sql.Identifier(f"gone_{each}")) for each in tables]
        self._run(*(rename.format(here, gone) for here, gone in named))
        try:
            yield
        finally:
            self._run(*(rename.format(gone, here) for here, gone in named))

    @contextmanager
    def refusing(self, table: str) -> Iterator[None]:
        """Whatever is written to this table breaks a constraint, and the fault repeats the whole row."""
        name = sql.Identifier(table)
        self._run(
            sql.SQL("ALTER TABLE {} ADD CONSTRAINT nothing_more CHECK (false) NOT VALID").format(
                name
            )
        )
        try:
            yield
        finally:
            self._run(sql.SQL("ALTER TABLE {} DROP CONSTRAINT nothing_more").format(name))

    @contextmanager
    def held(self, table: str) -> Iterator[None]:
        """Whoever needs this table waits."""
        with psycopg.connect(self._url) as holder:
            holder.execute(
                sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(sql.Identifier(table))
            )
            yield

    def cut_waiting(self, *, at_least: int) -> int:
        """Waits until so many of the service's connections wait for a lock, and cuts them and refuses new ones.

        Gives how many were cut. ``admit`` lets new ones in again.
        """
        deadline = time.monotonic() + PATIENCE
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
            while _count(server, _WAITING, self._name) < at_least:
                assert time.monotonic() < deadline, "nobody came to wait"
                time.sleep(0.02)
            server.execute(_ADMITS.format(sql.Identifier(self._name), sql.SQL("false")))
            return _count(server, _CUT, self._name)

    def admit(self) -> None:
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
            server.execute(_ADMITS.format(sql.Identifier(self._name), sql.SQL("true")))

    def _run(self, *statements: sql.Composed) -> None:
        """All or none; not for longer than it takes those who ask just now."""
        with psycopg.connect(self._url) as connection:
            for statement in statements:
                connection.execute(statement)

    def _rows(self, statement: sql.Composable) -> list[tuple[object, ...]]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


def _count(server: "psycopg.Connection[tuple[object, ...]]", statement: str, name: str) -> int:
    row = server.execute(statement, [name]).fetchone()
    assert row is not None
    return int(str(row[0]))


_TABLES = sql.SQL("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename")
_ADMITS = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
_CUT = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = %s AND wait_event_type = 'Lock'"
)
