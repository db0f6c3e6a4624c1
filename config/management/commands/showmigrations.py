"""Django's ``showmigrations``, which refuses an older release in the words of ``migrate``."""

from typing import Any

from django.core.management.commands import showmigrations

from config.platform.db.squash import refuse_older_release


class Command(showmigrations.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        refuse_older_release()
        super().handle(*args, **options)
