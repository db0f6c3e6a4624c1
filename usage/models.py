"""The ledger of model calls, its running totals, and what operators allow beyond the plan."""

from datetime import date, datetime
from uuid import UUID, uuid4

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone


class UsageRecordQuerySet(models.QuerySet["UsageRecord"]):
    def open(self) -> "UsageRecordQuerySet":
        return self.filter(state=UsageRecord.State.OPEN)

    def abandoned(self, *, at: datetime) -> "UsageRecordQuerySet":
        """Open records whose call must have died: their reservation has expired."""
        return self.open().filter(expires_at__lte=at)

    def of_month(self, *, user_id: UUID, period: date) -> "UsageRecordQuerySet":
        return self.filter(user_id=user_id, period=period)


class UsageRecord(models.Model):
    """One model call. Opened with what it may cost at most, settled exactly once to what it did cost. No content."""

    class State(models.TextChoices):
        OPEN = "open", "running"
        SETTLED = "settled", "settled"

    class Source(models.TextChoices):
        """How the settled numbers are known."""

        PROVIDER = "provider", "the provider's report"
        COUNTED = "counted", "counted while it was delivered"
        ESTIMATED = "estimated", "estimated"

    class End(models.TextChoices):
        DONE = "done", "done"
        CLIENT_GONE = "client_gone", "the client left"
        PROVIDER_FAILED = "provider_failed", "the provider failed"
        TIMEOUT = "timeout", "timed out"
        STOPPED = "stopped", "stopped by an operator or a revocation"
        CRASHED = "crashed", "the worker died"

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="usage"
    )
    client_id = models.UUIDField(help_text="The client of the user at the time.")
    session_id = models.UUIDField(null=True)
    period = models.DateField(help_text="First day of the calendar month (UTC) of admission.")
    day = models.DateField(help_text="Day (UTC) of admission.")
    model = models.CharField(max_length=120)
    provider = models.CharField(max_length=40)
    request_id = models.CharField(max_length=64, blank=True)
    streamed = models.BooleanField()
    state = models.CharField(max_length=8, choices=State, default=State.OPEN)
    reserved_input = models.PositiveBigIntegerField()
    reserved_output = models.PositiveBigIntegerField()
    input_tokens = models.PositiveBigIntegerField(default=0)
    cached_input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    reasoning_tokens = models.PositiveBigIntegerField(default=0)
    source = models.CharField(max_length=9, choices=Source, blank=True)
    end = models.CharField(max_length=15, choices=End, blank=True)
    opened_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True)

    user_id: UUID

    objects = UsageRecordQuerySet.as_manager()

    class Meta:
        ordering = ("-opened_at", "id")
        constraints = (
            models.CheckConstraint(
                condition=Q(state="open", settled_at=None, source="", end="")
                | (Q(state="settled", settled_at__isnull=False) & ~Q(source="") & ~Q(end="")),
                name="usage_settled_says_how",
            ),
        )
        indexes = (
            models.Index(fields=("user", "period", "day"), name="usage_by_user_and_month"),
            models.Index(
                fields=("expires_at",), condition=Q(state="open"), name="usage_open_by_expiry"
            ),
        )

    def __str__(self) -> str:
        return f"{self.model} {self.opened_at:%Y-%m-%d %H:%M}"


class MonthlyUsage(models.Model):
    """Running totals of one person in one month, with those of the month's current day.

    ``*_used`` is the sum of settled records and ``*_reserved`` the sum of open ones; the day's columns
    count for ``day`` only and start again when a later day is written. One row, so that admission is
    one conditional update. ``granted`` is the output limit given to the latest admission: it is how that
    statement tells its caller what it decided.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="monthly_usage"
    )
    period = models.DateField()
    input_used = models.PositiveBigIntegerField(default=0)
    input_reserved = models.PositiveBigIntegerField(default=0)
    output_used = models.PositiveBigIntegerField(default=0)
    output_reserved = models.PositiveBigIntegerField(default=0)
    day = models.DateField()
    day_used = models.PositiveBigIntegerField(default=0)
    day_reserved = models.PositiveBigIntegerField(default=0)
    granted = models.PositiveBigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "monthly usage"
        ordering = ("-period", "user")
        constraints = (
            models.UniqueConstraint(
                fields=("user", "period"), name="one_usage_row_per_user_and_month"
            ),
        )

    def __str__(self) -> str:
        return f"{self.period:%Y-%m}"


class Override(models.Model):
    """What an operator allows one person instead of the plan's numbers, until a date. Empty: the plan's."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="overrides"
    )
    monthly_input_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    monthly_output_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    daily_tokens = models.PositiveBigIntegerField(null=True, blank=True)
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
        return f"until {self.ends_at:%Y-%m-%d}"
