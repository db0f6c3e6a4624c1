"""Makes the next key that signs access tokens."""

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.key_ring import RELOAD_SECONDS
from accounts.signing_keys import KeyIsAhead, replace_signing_keys, rotate_signing_key
from config.problems import instant


class Command(BaseCommand):
    help = "Make a new signing key; the one before goes on verifying for 90 days."

    def add_arguments(self, parser: CommandParser) -> None:
        how = parser.add_mutually_exclusive_group()
        how.add_argument(
            "--publish-first",
            type=float,
            default=0.0,
            metavar="HOURS",
            help="publish the key now and sign with it after so many hours",
        )
        how.add_argument(
            "--emergency",
            action="store_true",
            help="void every other key, with all tokens that it has signed; people have to refresh",
        )

    def handle(self, *args: Any, publish_first: float, emergency: bool, **options: Any) -> None:
        if emergency and publish_first:
            raise CommandError("--publish-first and --emergency exclude each other.")
        if not 0 <= publish_first <= 24 * 90:
            raise CommandError("--publish-first takes hours, from 0 to 2160.")
        by, now = Actor.command("rotate_signing_key"), timezone.now()
        if emergency:
            key = replace_signing_keys(by=by, now=now)
            self.stdout.write(
                f"rotate_signing_key: {key.kid} signs, every other key is void; "
                f"all processes follow within {RELOAD_SECONDS:.0f} s"
            )
            return
        try:
            key = rotate_signing_key(publish_ahead=timedelta(hours=publish_first), by=by, now=now)
        except KeyIsAhead as refusal:
            raise CommandError(refusal.detail) from None
        self.stdout.write(f"rotate_signing_key: {key.kid} signs from {instant(key.signs_from)}")
