"""Alerts to operators, and the budgets of clients."""

from uuid import UUID

from django.conf import settings
from django.db import models
from django.db.models import Q

from config.platform.money import in_dollars


class AlertQuerySet(models.QuerySet["Alert"]):
    def waiting(self) -> "AlertQuerySet":
        """The alerts that have not been mailed."""
        return self.filter(told_at=None)


class Alert(models.Model):
    """A usage alert to operators; its unique row makes it one mail, and waits to be mailed.

    ``used`` and ``cap`` are the tokens at the time it was noticed, or percent for the percentile.
    """

    class Kind(models.TextChoices):
        INPUT = "input", "80 % of the month's input tokens"
        OUTPUT = "output", "80 % of the month's output tokens"
        INPUT_ALL = "input_all", "all of the month's input tokens"
        OUTPUT_ALL = "output_all", "all of the month's output tokens"
        DAY = "day", "the daily limit"
        PERCENTILE = "percentile", "95th percentile of shares at 80 %"
        ABANDONED = "abandoned", "many abandoned calls"
        REPORT = "report", "an implausible report by the provider"
        UNREAD = "unread", "answers that could not be read"

    kind = models.CharField(max_length=10, choices=Kind)
    # Its index is the one that the unique constraint makes.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.CASCADE,
        related_name="usage_alerts",
        db_index=False,
    )
    period = models.DateField(
        help_text="First day of the month; of the daily limit, the day (UTC)."
    )
    used = models.PositiveBigIntegerField()
    cap = models.PositiveBigIntegerField()
    record_id = models.UUIDField(null=True, help_text="The call, where it is about one.")
    noticed_at = models.DateTimeField()
    told_at = models.DateTimeField(null=True)

    user_id: UUID | None

    objects = AlertQuerySet.as_manager()

    class Meta:
        ordering = ("-noticed_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("user", "kind", "period"),
                nulls_distinct=False,
                name="one_alert_of_a_kind_for_a_person_and_period",
            ),
            models.CheckConstraint(
                condition=Q(kind="percentile", user=None)
                | (~Q(kind="percentile") & Q(user__isnull=False)),
                name="alert_is_about_a_person_or_all",
            ),
        )
        indexes = (
            models.Index(fields=("id",), condition=Q(told_at=None), name="alerts_waiting"),
            models.Index(fields=("told_at",), name="alerts_by_telling"),
        )

    def __str__(self) -> str:
        """A sentence with its month or day, and for tokens of a cap their numbers."""
        said, month = self.get_kind_display(), f"{self.period:%B}"
        if self.kind == Alert.Kind.PERCENTILE:
            return f"{said} in {month}"
        if self.kind in {Alert.Kind.ABANDONED, Alert.Kind.REPORT, Alert.Kind.UNREAD}:
            return f"{said} on {self.period:%-d %B}: {self.used:,}"
        said = said.replace("the month's", f"{month}'s")
        said = said.replace("the daily limit", f"the daily limit of {self.period:%-d %B}")
        return f"{said}: {self.used:,} of {self.cap:,}"


class Budget(models.Model):
    """An operator's monthly budget in money for one client, and what the worker last found spent of it."""

    client = models.OneToOneField(
        "accounts.Client", on_delete=models.CASCADE, primary_key=True, related_name="budget"
    )
    monthly = models.PositiveBigIntegerField(help_text="In millionths of a dollar.")
    period = models.DateField(null=True, help_text="First day of the month that was last summed.")
    spent = models.PositiveBigIntegerField(default=0, help_text="In that month, when last summed.")
    summed_at = models.DateTimeField(null=True)
    # Of the period: when operators were told of 80 % and of all of it.
    warned_at = models.DateTimeField(null=True)
    exceeded_at = models.DateTimeField(null=True)

    client_id: UUID

    class Meta:
        ordering = ("client",)

    def __str__(self) -> str:
        return f"{in_dollars(self.monthly)} a month"
