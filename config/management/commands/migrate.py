"""Django's ``migrate`` beside a running service: it gives up a lock that is not free at once, and retries.

A statement that waits for a table's lock blocks all later ones.
"""

import time
from collections.abc import Callable
from typing import Any

from django.core.management import CommandError
from django.core.management.commands import migrate
from django.db import OperationalError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from psycopg.errors import DeadlockDetected, LockNotAvailable

from config.platform.db.connections import called

# Less than the deadlock timeout of a second: the migration gives way, never a call.
LOCK_WAIT = "800ms"
# Every fifth attempt: the deadlock check also cancels a blocking autovacuum.
LONGER_WAIT = "1500ms"
PAUSE_SECONDS = 2.0
# About ten minutes, longer than any job locks a table.
ATTEMPTS = 200
TOO_OLD = "This database is of a release before 1.0.0: run `manage.py migrate` of version 1.0.0 first, then this one."


class Command(migrate.Command):
    """Retries from the migration that failed; applied ones are kept."""

    def handle(self, *args: Any, **options: Any) -> None:
        if _is_before_the_squash():
            raise CommandError(TOO_OLD)
        for left in reversed(range(ATTEMPTS)):
            try:
                _wait_for_locks(LOCK_WAIT if left % 5 else LONGER_WAIT)
                with connection.execute_wrapper(_unlimited_for_concurrent):
                    super().handle(*args, **options)
                return
            except OperationalError as error:
                if not left or not isinstance(error.__cause__, LockNotAvailable | DeadlockDetected):
                    raise
            self.stdout.write("\nmigrate: a table is in use; trying again")
            time.sleep(PAUSE_SECONDS)


def _is_before_the_squash() -> bool:
    """Returns whether a database has only some of the migrations that a squashed one replaces."""
    applied = MigrationRecorder(connection).applied_migrations().keys()
    replaced = [set(each.replaces) for each in MigrationLoader(None).disk_migrations.values()]
    return any(each & applied and each - applied for each in replaced)


def _unlimited_for_concurrent(execute: Callable[..., Any], sql: str, *given: Any) -> Any:
    """Waits without limit for concurrent statements, which block nothing and leave an invalid index if interrupted."""
    if "CONCURRENTLY" not in sql:
        return execute(sql, *given)
    _wait_for_locks("0")
    try:
        return execute(sql, *given)
    finally:
        _wait_for_locks(LOCK_WAIT)


def _wait_for_locks(limit: str) -> None:
    called("set_config", "lock_timeout", limit, False)
