"""Removes an operator's lost second factor and ends their console sessions."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.factors.setting_up import reset
from accounts.management.terminal import refusals_as_errors, user_of


class Command(BaseCommand):
    help = "Remove an operator's second factor; they set up another one with operator_setup_code."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--reason", default="Lost.")

    def handle(self, *args: Any, email: str, reason: str, **options: Any) -> None:
        user, by = user_of(email), Actor.command("reset_second_factor")
        with refusals_as_errors():
            removed = reset(user_id=user.pk, reason=reason, by=by, now=timezone.now())
        self.stdout.write(f"reset_second_factor: {removed} factors of {user.email} removed")
