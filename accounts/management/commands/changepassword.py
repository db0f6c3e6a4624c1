"""Sets a user's password. Replaces Django's command of this name, which audits nothing and ends no session."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.management.terminal import ask_password, refusals_as_errors, user_of
from accounts.people.users import set_password


class Command(BaseCommand):
    help = "Set a new password for a user, typed at the terminal, and end all their sessions."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")

    def handle(self, *args: Any, email: str, **options: Any) -> None:
        user, by = user_of(email), Actor.command("changepassword")
        password = ask_password(instead="Use send_password_link, or a terminal.")
        with refusals_as_errors():
            ended = set_password(user_id=user.pk, password=password, by=by, now=timezone.now())
        self.stdout.write(f"changepassword: {user} has a new password; {ended} sessions ended")
