"""Runs the nightly jobs, one after another."""

import sys
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from accounts.audit import Actor
from accounts.jobs import End
from config.composition.operation import nightly


class Command(BaseCommand):
    help = "Run every nightly job, even after one has failed. The exit code is 1 if any failed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="report what would be done and change nothing"
        )

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        failed = False
        for job, outcome in nightly.run_all(by=Actor.command("nightly"), dry_run=dry_run):
            failed |= outcome.end is End.FAILED
            # The terminal may be closed; the jobs run all the same, and the audit log records them.
            with suppress(OSError):
                self.stdout.write(f"{job.name}: {outcome.says}")
        if failed:
            sys.exit(1)
