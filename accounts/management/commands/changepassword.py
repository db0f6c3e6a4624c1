"""Sets somebody's password. Stands before Django's command of this name, which audits nothing and ends no session."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.management.commands.createsuperuser import asked_password
from accounts.models import User
from accounts.people.users import set_password
from config.api.problems import InvalidRequest


class Command(BaseCommand):
    help = "Set a new password for somebody, asked for here, and end all their sessions."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")

    def handle(self, *args: Any, email: str, **options: Any) -> None:
        user = User.objects.filter(email=email).first()
        if user is None:
            raise CommandError("There is no user with this email.")
        by = Actor.command("changepassword")
        password = asked_password(instead="Use send_password_link, or a terminal.")
        try:
            ended = set_password(user_id=user.pk, password=password, by=by, now=timezone.now())
        except InvalidRequest as refusal:
            raise CommandError(" ".join(fault.detail for fault in refusal.errors)) from None
        self.stdout.write(f"changepassword: {user} has a new password; {ended} sessions ended")
