"""The base class of commands that run one job."""

from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.audit import Actor
from accounts.jobs import End, Job, clock, run


class JobCommand(BaseCommand):
    """Runs ``job`` alone; the exit code is 1 if it failed, and 0 if it is running already elsewhere."""

    job: ClassVar[Job]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="show what would be done and change nothing"
        )

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        by = Actor.command(self.job.name)
        outcome = run(self.job, by=by, now=clock(), dry_run=dry_run)
        line = f"{self.job.name}: {outcome.says}"
        if outcome.end is End.FAILED:
            raise CommandError(line)
        self.stdout.write(line)
