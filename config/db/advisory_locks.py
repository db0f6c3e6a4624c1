"""Locks by name for what must be done by one at a time; the database ends them with their holder, however it ends."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256

import psycopg
from django.db import connection

# Whatever would end a transaction that does nothing for long; which of them there are depends on the server's version.
_FOR_AS_LONG_AS_IT_TAKES = """
SELECT set_config(name, '0', true) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')
"""


@contextmanager
def alone(name: str) -> Iterator[bool]:
    """Whether nobody else does ``name`` now; if so, nobody else can until the block ends.

    Held by a transaction of a connection of its own, so that the work may open and end transactions and give Django's
    connection back while it waits. A lock of the connection itself would outlive its holder where a pooler stands in
    between. Not for requests: each holder costs a connection.
    """
    with closing(psycopg.connect(**connection.get_connection_params())) as holder:
        holder.execute(_FOR_AS_LONG_AS_IT_TAKES)
        row = holder.execute("SELECT pg_try_advisory_xact_lock(%s)", [_number(name)]).fetchone()
        yield bool(row and row[0])


def _number(name: str) -> int:
    """Advisory locks have numbers; 63 bits of a hash keep names apart."""
    return int.from_bytes(sha256(name.encode()).digest()[:8]) >> 1
