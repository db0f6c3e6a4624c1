"""Makes the next key that signs access tokens, and returns when every process has it."""

from datetime import timedelta
from time import sleep
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.audit import Actor
from accounts.keys.key_ring import RELOAD_SECONDS
from accounts.keys.signing_keys import (
    LEAST_AHEAD,
    KeyIsAhead,
    replace_signing_keys,
    rotate_signing_key,
)
from accounts.models import SigningKey
from config.platform.problems.problem import instant

# The time that a process may need to read the rows.
READING_SECONDS = 1.0
# The clock of another host may be behind by this much.
CLOCK_SECONDS = 5.0
MOST_HOURS = 24 * 90


class Command(BaseCommand):
    help = (
        f"Create a new signing key, which starts signing {LEAST_AHEAD.seconds} s later, when every process knows "
        "it. The previous key verifies for another 90 days."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        how = parser.add_mutually_exclusive_group()
        how.add_argument(
            "--publish-first",
            type=float,
            default=0.0,
            metavar="HOURS",
            help="publish the key now and sign with it after this number of hours",
        )
        how.add_argument(
            "--emergency",
            action="store_true",
            help="void every other key and all tokens signed by it; shells have to refresh",
        )

    def handle(self, *args: Any, publish_first: float, emergency: bool, **options: Any) -> None:
        if emergency and publish_first:
            raise CommandError("--publish-first and --emergency exclude each other.")
        if not 0 <= publish_first <= MOST_HOURS:
            raise CommandError(f"--publish-first takes hours, from 0 to {MOST_HOURS}.")
        said = self._replaced() if emergency else self._rotated(timedelta(hours=publish_first))
        self.stdout.write(f"rotate_signing_key: {said}")

    def _replaced(self) -> str:
        key = replace_signing_keys(by=Actor.command("rotate_signing_key"), now=timezone.now())
        # Until then another process may still accept tokens signed by the leaked key.
        sleep(RELOAD_SECONDS + READING_SECONDS)
        return f"{key.kid} signs, every other key is void in every process"

    def _wait_for(self, key: SigningKey) -> None:
        """Announces the wait, and waits until the key signs in every process."""
        seconds = max(0.0, (key.signs_from - timezone.now()).total_seconds()) + CLOCK_SECONDS
        waiting = f"waiting {seconds:.0f} s, until {key.kid} signs in every process"
        self.stdout.write(f"rotate_signing_key: {waiting}")
        self.stdout.flush()
        sleep(seconds)

    def _rotated(self, publish_ahead: timedelta) -> str:
        now = timezone.now()
        try:
            key = rotate_signing_key(
                publish_ahead=publish_ahead, by=Actor.command("rotate_signing_key"), now=now
            )
        except KeyIsAhead as refusal:
            raise CommandError(refusal.detail) from None
        published = "is published" if key.published_at == now else "had been published before"
        if publish_ahead > LEAST_AHEAD:
            # Until then another process may still serve a list without it.
            read_in = RELOAD_SECONDS + READING_SECONDS
            sleep(max(0.0, (key.published_at - timezone.now()).total_seconds() + read_in))
            return f"{key.kid} {published} and signs from {instant(key.signs_from)}"
        if key.signs_from > now:
            self._wait_for(key)
        return f"{key.kid} {published} and signs since {instant(key.signs_from)}"
