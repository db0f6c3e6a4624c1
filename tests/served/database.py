"""The database of the served service, on the servers of this test run, and a view into it by Django's models."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from urllib.parse import unquote, urlsplit

import psycopg
from django.db import connection, connections, transaction
from django.db.utils import load_backend
from psycopg import sql

from tests.tools.owners import NAME, SERVICE, as_superuser

CONNECT_SECONDS = 60
Unblock = Callable[[], AbstractContextManager[None]]


class Database:
    """``url`` is for the tables' owner, who is no superuser, ``service_url`` for a role that owns none.

    Inside ``rows()`` models and rules stand on the same database. ``server`` is the address of another server than
    that of the test run.
    """

    def __init__(self, name: str, unblock: Unblock, *, server: str = "") -> None:
        parts = urlsplit(server or os.environ["DATABASE_URL"])._replace(path=f"/{name}")
        self.url = parts.geturl()
        role = f"{SERVICE}@{parts.netloc.rpartition('@')[2]}"
        self.service_url = parts._replace(netloc=role).geturl()
        self.name, self._unblock = name, unblock

    @contextmanager
    def rows(self) -> Iterator[None]:
        """For this thread; what is done inside commits at once, like that of any other process."""
        settings = connections.databases["default"]
        # A pool is shared by alias, and would give connections to the database of the other tests.
        options = {name: value for name, value in settings["OPTIONS"].items() if name != "pool"}
        # A test waits for longer than a request may.
        options["connect_timeout"] = CONNECT_SECONDS
        backend = load_backend(settings["ENGINE"])
        # Of the server that has it by now.
        host = unquote(urlsplit(self.url).netloc.rpartition("@")[2])
        before = connections["default"]
        with self._unblock():
            own = backend.DatabaseWrapper(
                {**settings, "NAME": self.name, "HOST": host, "OPTIONS": options}, "default"
            )
            connections["default"] = own
            try:
                yield
            finally:
                own.close()
                connections["default"] = before

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """As ``rows()``, and everything that is read inside is of one moment."""
        with self.rows(), transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield


@contextmanager
def new_database(unblock: Unblock, *, like: str = "template1") -> Iterator[Database]:
    """An empty one, or a copy of another, which is gone at the end whoever is still connected."""
    name = f"served_{secrets.token_hex(4)}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER {}")
    _on_server(create.format(*map(sql.Identifier, (name, like, NAME))))
    try:
        yield Database(name, unblock)
    finally:
        _on_server(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _on_server(statement: sql.Composed) -> None:
    with psycopg.connect(as_superuser(os.environ["DATABASE_URL"]), autocommit=True) as server:
        server.execute(statement)
