"""Queues a mail with a link to set a password."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.management.terminal import refusals_as_errors, user_of
from accounts.models import PasswordLink
from accounts.people.password_links import request_link


class Command(BaseCommand):
    help = "Queue an email with a link to set a password, good for 30 minutes, or 72 hours for an invitation."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument(
            "--invite",
            action="store_true",
            help="invite a user who has no password yet",
        )

    def handle(self, *args: Any, email: str, invite: bool, **options: Any) -> None:
        user = user_of(email)
        kind = PasswordLink.Kind.INVITATION if invite else PasswordLink.Kind.RESET
        by = Actor.command("send_password_link")
        with refusals_as_errors():
            request_link(user_id=user.pk, kind=kind, by=by, now=timezone.now())
        self.stdout.write(f"send_password_link: {kind.label} queued for {user.email}")
