"""Re-encrypts the tokens of connections under the newest encryption key, so that older keys can be removed."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from accounts.connections.reencrypting import reencrypt, unbound


class Command(BaseCommand):
    help = "Re-encrypt the tokens of connections under the first of ENCRYPTION_KEYS; the worker does so every night."

    def handle(self, *args: Any, **options: Any) -> None:
        moved, unreadable = reencrypt()
        self.stdout.write(
            f"reencrypt_connections: {moved} moved under the newest encryption key, "
            f"{unreadable} are under a key that ENCRYPTION_KEYS no longer has; "
            f"{unbound(at=timezone.now())} values, signing keys included, are of earlier releases and bound to no row"
        )
