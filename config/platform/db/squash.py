"""Refuses a database that is older than the squashed migrations (docs/adr/0074-squashed-migrations.md)."""

from django.core.management import CommandError
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

TOO_OLD = "This database is of a release before 1.0.0: run `manage.py migrate` of version 1.0.0 first, then this one."


def refuse_older_release() -> None:
    """Raises ``CommandError`` for a database in which only a part of what a squashed migration replaces is applied.

    Commands that compare migrations call it first: Django would name a migration that no longer exists.
    """
    applied = MigrationRecorder(connection).applied_migrations().keys()
    replaced = [set(each.replaces) for each in MigrationLoader(None).disk_migrations.values()]
    if any(each & applied and each - applied for each in replaced):
        raise CommandError(TOO_OLD)
