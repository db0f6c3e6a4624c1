"""Adds people from a CSV file to a client, by the same rule as the console's page."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.management.terminal import refusals_as_errors
from accounts.models import Client
from accounts.people.clients import find_client
from accounts.people.importing import import_people, preview, read
from accounts.seats import lacking


class Command(BaseCommand):
    help = (
        "Add people from a CSV file, with a column “email”, to a client, and email new people an invitation. "
        "A file with an error adds nobody; the same file again changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--client", required=True, help="its name, or its id")
        parser.add_argument(
            "--no-invitations", action="store_true", help="add people without mails"
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="show the result for each line and change nothing",
        )

    def handle(
        self,
        *args: Any,
        file: Path,
        client: str,
        no_invitations: bool,
        dry_run: bool,
        **options: Any,
    ) -> None:
        by, now = Actor.command("import_people"), timezone.now()
        with refusals_as_errors():
            target = find_client(client)
            try:
                text = read(file.read_bytes())
            except OSError as error:
                raise CommandError(f"{file} cannot be read: {error.strerror}.") from None
            if dry_run:
                self._preview(text, target)
                return
            done = import_people(
                text=text, client=target, invited=not no_invitations, by=by, now=now
            )
        self.stdout.write(
            f"import_people: {done.added} added, {done.invited} invited, {done.left} left as they were"
        )

    def _preview(self, text: str, client: Client) -> None:
        verdicts, sheet = preview(text=text, client=client)
        for each in verdicts:
            self.stdout.write(f"line {each.line}: {each}")
        if sheet.ignored:
            self.stdout.write(f"ignored columns: {', '.join(sheet.ignored)}")
        new = sum(each.fate.is_new for each in verdicts)
        if faults := sum(each.fate.is_fault for each in verdicts):
            raise CommandError(f"{faults} lines have errors, so nobody would be added.")
        if no_seats := lacking(client, number=new):
            raise CommandError(f"{new} are new, so nobody would be added: {no_seats}")
        self.stdout.write(
            f"import_people: {new} would be added, {len(verdicts) - new} left as they are"
        )
