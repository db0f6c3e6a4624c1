"""Django's ``migrate`` beside a running service: it gives up a lock that is not free at once, and retries.

A statement that waits for a table's lock blocks all later ones.
"""

import time
from collections.abc import Callable
from typing import Any

from django.core.management.commands import migrate
from django.db import OperationalError, connection
from psycopg.errors import DeadlockDetected, LockNotAvailable

from config.platform.db.connections import called
from config.platform.db.squash import refuse_older_release

# Less than the deadlock timeout of a second: the migration gives way, never a call.
LOCK_WAIT = "800ms"
# Every fifth attempt: the deadlock check also cancels a blocking autovacuum.
LONGER_WAIT = "1500ms"
PAUSE_SECONDS = 2.0
# About ten minutes, longer than any job locks a table.
ATTEMPTS = 200


class Command(migrate.Command):
    """Retries from the migration that failed; applied ones are kept."""

    def handle(self, *args: Any, **options: Any) -> None:
        refuse_older_release()
        for remaining in reversed(range(ATTEMPTS)):
            try:
                _wait_for_locks(LOCK_WAIT if remaining % 5 else LONGER_WAIT)
                with connection.execute_wrapper(_unlimited_for_concurrent):
                    super().handle(*args, **options)
                return
            except OperationalError as error:
                if not remaining or not isinstance(
                    error.__cause__, LockNotAvailable | DeadlockDetected
                ):
                    raise
            self.stdout.write("\nmigrate: a table is in use; trying again")
            time.sleep(PAUSE_SECONDS)


def _unlimited_for_concurrent(execute: Callable[..., Any], sql: str, *parameters: Any) -> Any:
    """Waits without limit for concurrent statements, which block nothing and leave an invalid index if interrupted."""
    if "CONCURRENTLY" not in sql:
        return execute(sql, *parameters)
    _wait_for_locks("0")
    try:
        return execute(sql, *parameters)
    finally:
        _wait_for_locks(LOCK_WAIT)


def _wait_for_locks(limit: str) -> None:
    called("set_config", "lock_timeout", limit, False)
