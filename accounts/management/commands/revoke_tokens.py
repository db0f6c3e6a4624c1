"""Ends every session of one user."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.management.terminal import user_of
from accounts.sessions.revocation import revoke_all


class Command(BaseCommand):
    help = "End every session of a user at once; they can sign in again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--reason", required=True)

    def handle(self, *args: Any, email: str, reason: str, **options: Any) -> None:
        if not reason.strip():
            raise CommandError("Give a reason.")
        user, by = user_of(email), Actor.command("revoke_tokens")
        ended = revoke_all(user_id=user.pk, by=by, reason=reason, now=timezone.now())
        self.stdout.write(f"revoke_tokens: {ended} sessions of {user.email} ended")
