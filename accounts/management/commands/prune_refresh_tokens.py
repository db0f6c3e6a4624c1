"""Removes sessions that have long been over, with their tokens."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from accounts.pruning import OVER_KEPT, prune_refresh_tokens


class Command(BaseCommand):
    help = "Remove sessions that ended or expired 30 days ago, with their tokens; the worker does so every night."

    def handle(self, *args: Any, **options: Any) -> None:
        sessions, tokens = prune_refresh_tokens(now=timezone.now())
        self.stdout.write(
            f"prune_refresh_tokens: {sessions} sessions over for {OVER_KEPT.days} days "
            f"removed, with {tokens} tokens"
        )
