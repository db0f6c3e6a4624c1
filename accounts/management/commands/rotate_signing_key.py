"""Makes the next key that signs access tokens."""

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.signing_keys import rotate_signing_key
from config.problems import instant


class Command(BaseCommand):
    help = "Make a new signing key; the one before goes on verifying for 90 days."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--publish-first",
            type=float,
            default=0,
            metavar="HOURS",
            help="publish the key now and sign with it after so many hours",
        )

    def handle(self, *args: Any, publish_first: float, **options: Any) -> None:
        key = rotate_signing_key(
            publish_ahead=timedelta(hours=publish_first),
            by=Actor.command("rotate_signing_key"),
            now=timezone.now(),
        )
        self.stdout.write(f"rotate_signing_key: {key.kid} signs from {instant(key.signs_from)}")
