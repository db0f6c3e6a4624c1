"""Re-encrypts the private signing keys under the newest encryption key, so that older keys can be removed."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from accounts.audit import Actor
from accounts.keys.signing_keys import reencrypt_signing_keys
from config.platform.encryption import CannotDecrypt


class Command(BaseCommand):
    help = "Re-encrypt the private signing keys under the first of ENCRYPTION_KEYS."

    def handle(self, *args: Any, **options: Any) -> None:
        by = Actor.command("reencrypt_signing_keys")
        try:
            done = reencrypt_signing_keys(by=by, now=timezone.now())
        except CannotDecrypt:
            raise CommandError(
                "A private key that signs, or will sign, is encrypted under a key that ENCRYPTION_KEYS no longer "
                "has. Put that key back, or run rotate_signing_key, with --emergency if it does not sign yet."
            ) from None
        self.stdout.write(
            f"reencrypt_signing_keys: {done.moved} of {done.keys} moved under the newest encryption key, "
            f"{done.unreadable} that no longer sign are under a key that ENCRYPTION_KEYS no longer has"
        )
