"""PostgreSQL's locks: advisory locks by name, and waits for a table's writers.

The database releases a lock when its holder ends, however it ends.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from time import sleep

import psycopg
from django.db import connection
from django.db.models import Model

from config.platform.db.sessions import with_session

# Removes every limit on idle transactions that the server's version has.
_LIFT_LIMITS = """
SELECT set_config(name, '0', true) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')
"""

_WRITERS = """
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND pid <> pg_backend_pid()
AND relation = %s::regclass
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
LOOK_SECONDS = 0.05
WRITERS_SECONDS = 5.0


@contextmanager
def alone(name: str) -> Iterator[bool]:
    """Tries to take the lock of this name; yields whether it did, and holds it until the block ends.

    A transaction on a second connection holds it, so that the work may open and end transactions and release Django's
    connection while it waits. A session-level lock would outlive its holder behind a pooler. Not for requests:
    each holder takes a connection.
    """
    # A simple query without parameters: the portal of an extended one would keep a snapshot while the lock is held.
    options = with_session(connection.get_connection_params())
    options["cursor_factory"] = psycopg.ClientCursor
    with closing(psycopg.connect(**options)) as holder:
        holder.execute(_LIFT_LIMITS)
        row = holder.execute("SELECT pg_try_advisory_xact_lock(%s)", [_number(name)]).fetchone()
        try:
            yield bool(row and row[0])
        finally:
            # The server notices a closed connection a moment later; until then the lock would seem taken.
            with suppress(psycopg.OperationalError):
                holder.rollback()


def lock_until_commit(name: str) -> None:
    """Waits for the lock of this name and holds it until the current transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s::bigint)", [_number(name)])


def wait_for_writers(model: type[Model]) -> bool:
    """Waits until every transaction that is writing to this table has ended; False if one does not within 5 s.

    It blocks no writer: transactions that begin meanwhile are not waited for.
    """
    waited, writers = 0.0, _writers(model)
    while writers and waited < WRITERS_SECONDS:
        sleep(LOOK_SECONDS)
        waited += LOOK_SECONDS
        writers &= _writers(model)
    return not writers


def _writers(model: type[Model]) -> set[str]:
    with connection.cursor() as cursor:
        table = model._meta.db_table  # noqa: SLF001 - Django's documented API
        cursor.execute(_WRITERS, [table])
        return {transaction for (transaction,) in cursor.fetchall()}


def _number(name: str) -> int:
    """Returns the number of a lock: 63 bits of a hash of its name."""
    return int.from_bytes(sha256(name.encode()).digest()[:8]) >> 1
