"""Rows as releases before a trigger could write them."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection, transaction

# Only a superuser may skip triggers. The role of the tests, who migrates too, has this function for it, in the database
# of Django's own tests alone.
SKIPPING = """
CREATE SCHEMA beside_the_tests;
CREATE FUNCTION beside_the_tests.triggers(which text) RETURNS text LANGUAGE sql SECURITY DEFINER
    AS $$ SELECT set_config('session_replication_role', which, true) $$;
GRANT USAGE ON SCHEMA beside_the_tests TO PUBLIC;
"""
# Until the end of the transaction.
SKIP, HEED = (f"SELECT beside_the_tests.triggers('{which}')" for which in ("replica", "origin"))


def let_triggers_be_skipped(superuser: str) -> None:
    """In the database of this address."""
    with psycopg.connect(superuser) as connected:
        connected.execute(SKIPPING)


@contextmanager
def without_triggers() -> Iterator[None]:
    """Writes of this block, in a transaction, start no trigger and check no foreign key."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(SKIP)
        yield
        cursor.execute(HEED)
