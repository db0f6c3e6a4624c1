"""The database connection of this thread, and giving it back early."""

from django.db import connection


def release_connection() -> None:
    """Gives this thread's connection back to the pool, unless a transaction is open around us.

    Called before anything that waits for someone else: a provider, storage, a browser.
    """
    if not connection.in_atomic_block:
        connection.close()
