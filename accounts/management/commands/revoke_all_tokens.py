"""Ends every session of every user, as after a restore from a backup."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.sessions.revocation import revoke_everything


class Command(BaseCommand):
    help = "End every session of every user at once; they can sign in again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--reason", required=True)

    def handle(self, *args: Any, reason: str, **options: Any) -> None:
        if not reason.strip():
            raise CommandError("Give a reason.")
        by = Actor.command("revoke_all_tokens")
        people, sessions = revoke_everything(by=by, reason=reason, now=timezone.now())
        self.stdout.write(f"revoke_all_tokens: {sessions} sessions of {people} people ended")
