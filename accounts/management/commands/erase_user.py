"""Erases a person for good."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.management.terminal import asked
from accounts.models import User
from accounts.people.erasure import erase_user, foresee
from config.api.problems import InvalidRequest


class Command(BaseCommand):
    help = "Erase a person: nothing personal stays but in the audit log, for its days. It cannot be undone."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--reason", help="kept in the audit log; not the email")
        parser.add_argument(
            "--confirm", metavar="EMAIL", help="the email again; asked for if not given"
        )
        parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")

    def handle(
        self,
        *args: Any,
        email: str,
        reason: str | None,
        confirm: str | None,
        dry_run: bool,
        **options: Any,
    ) -> None:
        user = User.objects.filter(email=email).first()
        if user is None:
            raise CommandError("There is no user with this email.")
        if dry_run:
            self._say("would be removed", foresee(user_id=user.pk))
            return
        if not reason:
            raise CommandError("--reason is required: say why.")
        if confirm is None:
            sentence = "This cannot be undone. Type the email of the person: "
            confirm = asked(input, sentence, instead="Give the email again, by --confirm.")
        by, now = Actor.command("erase_user"), timezone.now()
        try:
            removed = erase_user(user_id=user.pk, email=confirm, reason=reason, by=by, now=now)
        except InvalidRequest as refusal:
            faults = [fault.detail for fault in refusal.errors]
            raise CommandError(" ".join(faults) or refusal.detail) from None
        self._say("removed", removed)

    def _say(self, done: str, numbers: Any) -> None:
        listed = ", ".join(f"{name} {number}" for name, number in numbers.items())
        self.stdout.write(f"erase_user: {done}: email and password, {listed}")
