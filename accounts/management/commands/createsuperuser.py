"""Makes an operator. Stands before Django's command of this name, which audits nothing and takes any password."""

import os
from getpass import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.management.terminal import asked
from accounts.people.users import add_operator
from config.api.problems import InvalidRequest

UNASKED = "Use --noinput, with DJANGO_SUPERUSER_EMAIL and DJANGO_SUPERUSER_PASSWORD."


class Command(BaseCommand):
    help = "Make an operator, who can do everything in the console and belongs to no client."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--email", help="otherwise DJANGO_SUPERUSER_EMAIL, or asked for")
        parser.add_argument(
            "--noinput",
            "--no-input",
            action="store_false",
            dest="interactive",
            help="ask nothing; the password is DJANGO_SUPERUSER_PASSWORD, and without it there is none yet",
        )

    def handle(self, *args: Any, email: str | None, interactive: bool, **options: Any) -> None:
        email = email or os.environ.get("DJANGO_SUPERUSER_EMAIL") or ""
        password = os.environ.get("DJANGO_SUPERUSER_PASSWORD") or None
        if interactive:
            email = email or asked(input, "Email: ", instead=UNASKED)
            password = asked_password(instead=UNASKED)
        by, now = Actor.command("createsuperuser"), timezone.now()
        try:
            operator = add_operator(email=email.strip(), password=password, by=by, now=now)
        except InvalidRequest as refusal:
            raise CommandError(" ".join(fault.detail for fault in refusal.errors)) from None
        without = "" if password else ", without a password: use send_password_link"
        self.stdout.write(f"createsuperuser: {operator} is an operator{without}")


def asked_password(*, instead: str) -> str:
    """A password from the terminal, typed twice; shown nowhere. ``instead`` is told where there is none."""
    password = asked(getpass, "Password: ", instead=instead)
    if password != asked(getpass, "Password (again): ", instead=instead):
        raise CommandError("The two passwords are not the same.")
    return password
