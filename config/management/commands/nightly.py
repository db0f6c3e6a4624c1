"""Every job of the night, one after another."""

import sys
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from accounts.audit import Actor
from accounts.jobs import failed
from config.management import nightly


class Command(BaseCommand):
    help = "Run every nightly job. One that fails does not stop the others; the exit code says whether any did."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="say what would be done and change nothing"
        )

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        outcomes = []
        for job, outcome in nightly.run_all(by=Actor.command("nightly"), dry_run=dry_run):
            outcomes.append(outcome)
            # Whoever listened may be gone; the jobs are to be done all the same, and the audit log tells of them.
            with suppress(OSError):
                self.stdout.write(f"{job.name}: {outcome.says}")
        if failed(outcomes):
            sys.exit(1)
