"""Adds people from a CSV file to a client, by the rule of the console's page."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.models import Client
from accounts.people.clients import find_client
from accounts.people.importing import foresee, import_people, read
from config.api.problems import InvalidRequest


class Command(BaseCommand):
    help = (
        "Add people from a CSV file, with a column “email”, to a client, and mail each who is new an invitation. "
        "All or nobody; the same file again does nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--client", required=True, help="its name, or its id")
        parser.add_argument(
            "--no-invitations", action="store_true", help="add them and mail nobody"
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="say what would happen, line by line, and change nothing",
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
        try:
            target = find_client(client)
            text = read(file.read_bytes())
            if dry_run:
                self._foresee(text, target)
                return
            by = Actor.command("import_people")
            done = import_people(
                text=text, client=target, invited=not no_invitations, by=by, now=timezone.now()
            )
        except OSError as error:
            raise CommandError(f"{file} cannot be read: {error.strerror}.") from None
        except InvalidRequest as refusal:
            raise CommandError("\n".join(fault.detail for fault in refusal.errors)) from None
        self.stdout.write(
            f"import_people: {done.added} added, {done.invited} invited, {done.left} left as they were"
        )

    def _foresee(self, text: str, client: Client) -> None:
        verdicts, sheet = foresee(text=text, client=client)
        for each in verdicts:
            self.stdout.write(f"line {each.line}: {each}")
        if sheet.ignored:
            self.stdout.write(f"columns that are not looked at: {', '.join(sheet.ignored)}")
        new, faults = (
            sum(each.fate.is_new for each in verdicts),
            sum(each.fate.is_fault for each in verdicts),
        )
        if faults:
            raise CommandError(f"{faults} lines cannot be taken, so nobody would be added.")
        self.stdout.write(
            f"import_people: {new} would be added, {len(verdicts) - new} left as they are"
        )
