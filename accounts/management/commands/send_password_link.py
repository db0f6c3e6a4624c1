"""Has a link mailed by which somebody sets their password."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.models import PasswordLink, User
from accounts.people.password_links import Disabled, NotInvited, request_link


class Command(BaseCommand):
    help = "Have the worker mail a link that sets a password: good for 30 minutes, or 72 hours for an invitation."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument(
            "--invite",
            action="store_true",
            help="invite somebody who has no password yet",
        )

    def handle(self, *args: Any, email: str, invite: bool, **options: Any) -> None:
        user = User.objects.filter(email=email).first()
        if user is None:
            raise CommandError("There is no user with this email.")
        kind = PasswordLink.Kind.INVITATION if invite else PasswordLink.Kind.RESET
        by = Actor.command("send_password_link")
        try:
            request_link(user_id=user.pk, kind=kind, by=by, now=timezone.now())
        except (Disabled, NotInvited) as refusal:
            raise CommandError(refusal.detail) from None
        self.stdout.write(f"send_password_link: {kind.label} queued for {user.email}")
