"""Django's ``check``, which asks storage too; no other command does."""

from typing import Any

from django.core.checks import register
from django.core.management.commands import check

from releases.delivery.conditional_writes import storage_keeps_conditions


class Command(check.Command):
    """Registers what takes requests only here: every command runs the registered checks."""

    def handle(self, *labels: Any, **options: Any) -> None:
        register(storage_keeps_conditions, "storage")
        super().handle(*labels, **options)
