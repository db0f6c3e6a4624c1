"""The table of personal keys."""

from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from config.platform.db.uuid7 import timed_uuid


class PersonalKeyQuerySet(models.QuerySet["PersonalKey"]):
    def live(self, *, at: datetime) -> "PersonalKeyQuerySet":
        """Keys that have neither ended nor expired, and were made since their person's access was last ended."""
        return self.filter(ended_at=None, expires_at__gt=at, epoch=F("user__epoch"))


class PersonalKey(models.Model):
    """A person's static key for model calls, for editors and command lines that hold one."""

    id = models.UUIDField(primary_key=True, default=timed_uuid, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="personal_keys"
    )
    name = models.CharField(max_length=60)
    hash = models.BinaryField(unique=True, help_text="SHA-256 of the 32 random bytes of the key.")
    epoch = models.PositiveIntegerField(help_text="The person's epoch when the key was made.")
    monthly_output_tokens = models.PositiveBigIntegerField(
        null=True, help_text="Its own cap, beside its person's; empty: theirs alone."
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, help_text="To the minute.")
    mailed_at = models.DateTimeField(
        null=True, editable=False, help_text="When a mail tells of it; empty: with that of another."
    )
    ended_at = models.DateTimeField(null=True)

    user_id: UUID

    objects = PersonalKeyQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("created_at")), name="key_expires_after_it_was_made"
            ),
        )

    def __str__(self) -> str:
        return self.name
