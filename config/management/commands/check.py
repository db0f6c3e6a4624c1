"""Django's ``check``, with a check of storage that no other command runs."""

from typing import Any

from django.core.checks import register
from django.core.management.commands import check

from releases.delivery.conditional_writes import storage_keeps_conditions


class Command(check.Command):
    """Registers the checks that send requests here only: every command runs the registered ones."""

    def handle(self, *labels: Any, **options: Any) -> None:
        register(storage_keeps_conditions, "storage")
        super().handle(*labels, **options)
