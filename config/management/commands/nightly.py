"""Every job of the night, one after another."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from accounts.audit import Actor
from accounts.jobs import failed
from config import nightly


class Command(BaseCommand):
    help = "Run every nightly job. One that fails does not stop the others; the exit code says whether any did."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="say what would be done and change nothing"
        )

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        outcomes = []
        for job, outcome in nightly.run_all(by=Actor.command("nightly"), dry_run=dry_run):
            self.stdout.write(f"{job.name}: {outcome.says}")
            outcomes.append(outcome)
        if failed(outcomes):
            sys.exit(1)
