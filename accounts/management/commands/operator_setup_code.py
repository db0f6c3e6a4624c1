"""Makes the code for an operator to set up a second factor."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.factors.setting_up import make_set_up_code
from accounts.management.terminal import refusals_as_errors, user_of


class Command(BaseCommand):
    help = (
        "Print a code that works once, for 30 minutes, for an operator to set up a second factor."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")

    def handle(self, *args: Any, email: str, **options: Any) -> None:
        user, by = user_of(email), Actor.command("operator_setup_code")
        with refusals_as_errors():
            code = make_set_up_code(user_id=user.pk, by=by, now=timezone.now())
        self.stdout.write(code)
