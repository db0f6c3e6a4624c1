"""Locks by name for what must be done by one at a time; the database ends them with their holder, however it ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

import psycopg
from django.db import connection


@contextmanager
def alone(name: str) -> Iterator[bool]:
    """Whether nobody else does ``name`` now; if so, nobody else can until the block ends.

    Held by a connection of its own and outside any transaction, so that the work may open and end transactions
    and give Django's connection back while it waits. Not for requests: each holder costs a connection.
    """
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as holder:
        row = holder.execute("SELECT pg_try_advisory_lock(%s)", [_number(name)]).fetchone()
        yield bool(row and row[0])


def _number(name: str) -> int:
    """Advisory locks have numbers; 63 bits of a hash keep names apart."""
    return int.from_bytes(sha256(name.encode()).digest()[:8]) >> 1
