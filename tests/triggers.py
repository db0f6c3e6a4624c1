"""Rows as releases before a trigger could write them."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def without_triggers() -> Iterator[None]:
    """Writes of this block, in a transaction, start no trigger and check no foreign key."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        yield
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")
