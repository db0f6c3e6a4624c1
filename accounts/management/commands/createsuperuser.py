"""Makes an operator. Replaces Django's command of this name, which audits nothing and accepts any password."""

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.management.terminal import ask, ask_password, refusals_as_errors
from accounts.people.users import add_operator
from config.platform.db.squash import refuse_older_release

WITHOUT_TERMINAL = "Use --noinput, with DJANGO_SUPERUSER_EMAIL and DJANGO_SUPERUSER_PASSWORD."


class Command(BaseCommand):
    help = "Create an operator, who may do everything in the console and belongs to no client."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--email", help="default: DJANGO_SUPERUSER_EMAIL, or a prompt")
        parser.add_argument(
            "--noinput",
            "--no-input",
            action="store_false",
            dest="interactive",
            help="do not prompt; the password is DJANGO_SUPERUSER_PASSWORD, or is left unset without it",
        )

    def execute(self, *args: Any, **options: Any) -> str | None:
        # Before Django compares migrations.
        refuse_older_release()
        return super().execute(*args, **options)

    def handle(self, *args: Any, email: str | None, interactive: bool, **options: Any) -> None:
        email = email or os.environ.get("DJANGO_SUPERUSER_EMAIL") or ""
        password = os.environ.get("DJANGO_SUPERUSER_PASSWORD") or None
        if interactive:
            email = email or ask(input, "Email: ", instead=WITHOUT_TERMINAL)
            password = ask_password(instead=WITHOUT_TERMINAL)
        by, now = Actor.command("createsuperuser"), timezone.now()
        with refusals_as_errors():
            operator = add_operator(email=email.strip(), password=password, by=by, now=now)
        without = "" if password else ", without a password: use changepassword"
        self.stdout.write(f"createsuperuser: {operator} is an operator{without}")
