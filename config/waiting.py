"""Connections that do not wait for ever for the answer of a database.

PostgreSQL ends a statement that takes too long, but one that is frozen ends nothing, and its kernel goes on saying
that all is well. So each connection waits as long as the server itself would work on a statement (its
``statement_timeout``, whoever has set it) and a moment longer. A connection that was given up is closed: nobody
knows what its server still does, and the pool replaces it.

Where no ``statement_timeout`` is set, as in management commands and the worker of queued work, there is none here
either: nobody waits for them, and they go on where they were. Who asks for a wait of a length of his own, as
listening for notices does, gets that.

They also make borrowing cheap. The pool asks each connection that it lends whether it lives, by executing nothing;
here that is a look at the socket, on which a server that has gone away has left its last word, or its end.
"""

import os
from collections.abc import Generator
from functools import cached_property
from typing import Any, Self, TypeVar

import psycopg
from gevent.monkey import is_module_patched
from gevent.socket import wait_read, wait_readwrite, wait_write
from psycopg.errors import _WaitTimeout
from psycopg.rows import tuple_row
from psycopg.waiting import Wait

from config.quiet import is_quiet

# What a server needs beyond its own limit to say that it has been reached.
MARGIN_SECONDS = 2.0
# A new connection's first question is answered at once or not at all; as long as connecting itself may take.
FIRST_ANSWER_SECONDS = 5.0
# How often a wait looks up, as psycopg has it.
WAKE_SECONDS = 0.1
NOT_SAID = -1.0
SIGN_OF_LIFE = ""
SERVERS_LIMIT = "SELECT extract(epoch FROM current_setting('statement_timeout')::interval)::float8"

R = TypeVar("R")

_UNTIL = {Wait.R: wait_read, Wait.W: wait_write, Wait.RW: wait_readwrite}


def limit_statements(limits: str) -> None:
    """Gives the limits to every connection of these processes; what is set already comes later and wins."""
    os.environ["PGOPTIONS"] = f"{limits} {os.environ.get('PGOPTIONS', '')}".strip()


class NoAnswer(psycopg.OperationalError):
    """The database has not answered for longer than it may work on a statement."""


class PatientConnection(psycopg.Connection[Any]):
    """For Django's pool, which opens connections in autocommit. ``patience`` in seconds; ``None`` is for ever."""

    patience: float | None = FIRST_ANSWER_SECONDS

    @cached_property
    def _sign(self) -> psycopg.Cursor[Any]:
        return self.cursor()

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Self:
        connection = super().connect(conninfo, **options)
        try:
            connection.patience = _patience_of(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def wait(
        self,
        gen: Generator[Any, Any, R],
        interval: float = WAKE_SECONDS,
        timeout: float | None = NOT_SAID,
    ) -> R:
        if timeout != NOT_SAID:
            return super().wait(gen, interval, timeout)
        try:
            if is_module_patched("select"):
                return _waited_in_loop(gen, self.pgconn.socket, self.patience)
            return super().wait(gen, interval, self.patience)
        except (_WaitTimeout, TimeoutError):
            self.pgconn.finish()
            raise NoAnswer("the database does not answer") from None

    def execute(self, query: Any, *args: Any, **options: Any) -> psycopg.Cursor[Any]:
        """As psycopg has it; ``""``, by which pools ask for a sign of life, is asked only where a look will not do."""
        if query != SIGN_OF_LIFE:
            return super().execute(query, *args, **options)
        if not self.closed and is_quiet(self.pgconn.socket):
            # Nobody looks at it, and to make one each time takes as long as the look at the socket.
            return self._sign
        try:
            return super().execute(query, *args, **options)
        except psycopg.Error:
            # Those that lie idle will have died with it. By itself the pool would meet them one by one, and wait
            # longer after each, until it gives up whoever asked.
            if pool := getattr(self, "_pool", None):
                pool.check()
            raise


def _waited_in_loop(gen: Generator[Any, Any, R], socket: int, patience: float | None) -> R:
    """psycopg's wait for gevent's loop itself, at half the price of the ``poll`` that gevent puts over it."""
    try:
        wanted = next(gen)
        while True:
            _UNTIL[wanted](socket, patience)
            wanted = gen.send(wanted)
    except StopIteration as end:
        result: R = end.value
        return result


def _patience_of(connection: psycopg.Connection[Any]) -> float | None:
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        seconds: float
        (seconds,) = cursor.execute(SERVERS_LIMIT).fetchone() or (0.0,)
    return seconds + MARGIN_SECONDS if seconds else None
