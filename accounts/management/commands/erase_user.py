"""Erases a person for good."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.management.terminal import ask, refusals_as_errors, user_of
from accounts.people.erasure import erase_user, preview


class Command(BaseCommand):
    help = (
        "Erase a person's data permanently, except in the audit log, which keeps it for AUDIT_RETENTION_DAYS. "
        "This cannot be undone."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--reason", help="kept in the audit log; not the email")
        parser.add_argument("--confirm", metavar="EMAIL", help="the email again; default: a prompt")
        parser.add_argument(
            "--dry-run", action="store_true", help="only show what would be removed"
        )

    def handle(
        self,
        *args: Any,
        email: str,
        reason: str | None,
        confirm: str | None,
        dry_run: bool,
        **options: Any,
    ) -> None:
        user = user_of(email)
        if dry_run:
            self._say("would be removed", preview(user_id=user.pk))
            return
        if not reason:
            raise CommandError("--reason is required: say why.")
        if confirm is None:
            sentence = "This cannot be undone. Type the person’s email: "
            confirm = ask(input, sentence, instead="Repeat the email with --confirm.")
        by, now = Actor.command("erase_user"), timezone.now()
        with refusals_as_errors():
            removed = erase_user(user_id=user.pk, email=confirm, reason=reason, by=by, now=now)
        self._say("removed", removed)

    def _say(self, done: str, numbers: Any) -> None:
        listed = ", ".join(f"{name} {number}" for name, number in numbers.items())
        self.stdout.write(f"erase_user: {done}: email and password, {listed}")
