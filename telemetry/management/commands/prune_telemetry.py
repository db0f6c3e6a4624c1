"""Removes events that are older than they are kept; for every night."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from config.problems import instant
from telemetry.pruning import prune


class Command(BaseCommand):
    help = "Remove telemetry received more than TELEMETRY_RETENTION_DAYS ago."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="say how many there are and remove none"
        )

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        done = prune(now=timezone.now(), dry_run=dry_run)
        what = "would be removed" if dry_run else "removed"
        self.stdout.write(
            f"prune_telemetry: {done.events} events {what}, kept from {instant(done.kept_from)}"
        )
