"""Settles model calls that died with their worker; the worker does the same every minute."""

from typing import Any

from django.core.management.base import BaseCommand

from config.platform.db.connections import database_now
from usage.settlement import settle_abandoned


class Command(BaseCommand):
    help = "Settle model calls whose reservation has expired."

    def handle(self, *args: Any, **options: Any) -> None:
        count = settle_abandoned(now=database_now())
        self.stdout.write(f"settle_abandoned_calls: {count} settled")
