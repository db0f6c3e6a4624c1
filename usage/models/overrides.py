"""Operators' overrides of a person's caps, and their stops of model calls."""

from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone


class Override(models.Model):
    """An operator's numbers for one person until a date, instead of the plan's or on top of them.

    Instead: only the latest in force counts, and an empty number is the plan's. On top (``is_extra``): all in force
    add up, and an empty number is 0.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="overrides"
    )
    monthly_input_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    monthly_output_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    daily_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    is_extra = models.BooleanField("on top", default=False, db_default=False)
    starts_at = models.DateTimeField(default=timezone.now)
    ends_at = models.DateTimeField()
    reason = models.TextField()

    class Meta:
        ordering = ("-ends_at", "-id")
        constraints = (
            models.CheckConstraint(
                condition=Q(ends_at__gt=F("starts_at")), name="override_ends_after_it_starts"
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="override_gives_a_reason"),
        )
        indexes = (models.Index(fields=("user", "ends_at"), name="override_by_user_and_end"),)

    def __str__(self) -> str:
        return f"{'on top ' if self.is_extra else ''}until {self.ends_at:%Y-%m-%d}"


class StopQuerySet(models.QuerySet["Stop"]):
    def in_force(self, *, at: datetime) -> "StopQuerySet":
        return self.filter(Q(ends_at=None) | Q(ends_at__gt=at))


class Stop(models.Model):
    """An operator's stop of a person's model calls, until its end or their restart."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="model_calls_stop",
    )
    stopped_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True, help_text="Empty: until an operator takes it back.")
    reason = models.TextField()

    user_id: UUID

    objects = StopQuerySet.as_manager()

    class Meta:
        ordering = ("-stopped_at", "user")
        constraints = (
            models.CheckConstraint(condition=~Q(reason=""), name="stop_gives_a_reason"),
            models.CheckConstraint(
                condition=Q(ends_at=None) | Q(ends_at__gt=F("stopped_at")),
                name="stop_ends_after_it_starts",
            ),
        )

    def __str__(self) -> str:
        return f"since {self.stopped_at:%Y-%m-%d %H:%M}"
