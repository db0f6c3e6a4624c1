"""Removes audit events that are older than they must be kept."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.pruning import prune_audit_log


class Command(BaseCommand):
    help = "Remove audit events older than AUDIT_RETENTION_DAYS; the worker does so every night."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say how many it would be")

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        by = Actor.command("prune_audit_log")
        events = prune_audit_log(by=by, now=timezone.now(), dry_run=dry_run)
        done = "would be removed" if dry_run else "removed"
        days = settings.AUDIT_RETENTION_DAYS
        self.stdout.write(f"prune_audit_log: {events} events older than {days} days {done}")
