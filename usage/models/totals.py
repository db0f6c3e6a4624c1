"""The running totals of people and of personal keys, and the daily sums of the ledger."""

from uuid import UUID

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Least
from django.db.models.lookups import GreaterThanOrEqual


def none_negative(*names: str) -> GreaterThanOrEqual:
    """A condition that none of these numbers is negative; NULL is ignored.

    One condition for all columns: in every statement that writes to a table, PostgreSQL parses each of its constraints.
    """
    return GreaterThanOrEqual(Least(*names), 0)


class MonthlyUsage(models.Model):
    """Running totals of one person in one month, with those of the month's current day.

    ``*_used`` is the sum of settled records and ``*_reserved`` the sum of open ones; the day's columns count for
    ``day`` only and restart with a later day. One row, so that admission is one conditional update. ``granted`` is
    the output limit of the latest admission, which that statement returns. ``*_cap`` are its caps (None: no cap), by
    which settlement notices a crossed share without a query of plan and overrides.
    """

    # Its index is the one that the unique constraint makes.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="monthly_usage",
        db_index=False,
    )
    period = models.DateField()
    input_used = models.BigIntegerField(default=0)
    input_reserved = models.BigIntegerField(default=0)
    output_used = models.BigIntegerField(default=0)
    output_reserved = models.BigIntegerField(default=0)
    day = models.DateField()
    day_used = models.BigIntegerField(default=0)
    day_reserved = models.BigIntegerField(default=0)
    granted = models.BigIntegerField(default=0)
    input_cap = models.BigIntegerField(null=True)
    output_cap = models.BigIntegerField(null=True)

    class Meta:
        verbose_name_plural = "monthly usage"
        ordering = ("-period", "user")
        constraints = (
            models.UniqueConstraint(
                fields=("user", "period"), name="one_usage_row_per_user_and_month"
            ),
            models.CheckConstraint(
                condition=none_negative(
                    "input_used",
                    "input_reserved",
                    "output_used",
                    "output_reserved",
                    "day_used",
                    "day_reserved",
                    "granted",
                    "input_cap",
                    "output_cap",
                ),
                name="usage_totals_not_below_zero",
            ),
        )
        # For queries over all people of one month.
        indexes = (models.Index(fields=("period", "id"), name="usage_months"),)

    def __str__(self) -> str:
        return f"{self.period:%Y-%m}"


class KeyMonth(models.Model):
    """Running totals of one personal key that has a cap of its own, in one month.

    They are written by the statements that write those of its person, whose row is locked first.
    """

    key_id = models.UUIDField()
    period = models.DateField()
    output_used = models.BigIntegerField(default=0)
    output_reserved = models.BigIntegerField(default=0)
    output_cap = models.BigIntegerField(help_text="The cap of the latest admission.")

    class Meta:
        ordering = ("-period", "key_id")
        constraints = (
            models.UniqueConstraint(fields=("key_id", "period"), name="one_row_per_key_and_month"),
            models.CheckConstraint(
                condition=none_negative("output_used", "output_reserved", "output_cap"),
                name="key_totals_not_below_zero",
            ),
        )

    def __str__(self) -> str:
        return f"{self.period:%Y-%m}"


class Summed(models.Model):
    """Sums of settled calls, as the worker last counted them.

    The cost includes attempts that were abandoned, which are no calls and no tokens. ``unpriced`` is the number of
    calls without prices, whose cost is not known.
    """

    calls = models.BigIntegerField(default=0)
    errors = models.BigIntegerField(default=0)
    disconnected = models.BigIntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    cached_input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cost = models.BigIntegerField(default=0, help_text="In millionths of a dollar.")
    unpriced = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


DAILY_SUMS = tuple(field.name for field in Summed._meta.fields)  # noqa: SLF001 - Django's documented API


class DailyUsage(Summed):
    """The calls of one day, client, person, model and provider; abandoned attempts are in the row of their provider."""

    KEY = ("day", "client_id", "user_id", "model", "provider")

    day = models.DateField()
    client_id = models.UUIDField()
    # Its index is the one by person and day.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    model = models.CharField(max_length=120)
    provider = models.CharField(max_length=40)

    user_id: UUID

    class Meta:
        ordering = ("-day", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("day", "client_id", "user", "model", "provider"),
                name="one_row_of_daily_usage",
            ),
            models.CheckConstraint(
                condition=none_negative(*DAILY_SUMS), name="daily_usage_not_below_zero"
            ),
        )
        indexes = (
            models.Index(fields=("client_id", "day"), name="daily_usage_by_client"),
            models.Index(fields=("user", "day"), name="daily_usage_by_person"),
        )

    def __str__(self) -> str:
        return f"{self.model} {self.day}"


class DayTotal(Summed):
    """Daily usage of everybody together."""

    KEY = ("day", "model", "provider")

    day = models.DateField()
    model = models.CharField(max_length=120)
    provider = models.CharField(max_length=40)

    class Meta:
        ordering = ("-day", "id")
        constraints = (
            models.UniqueConstraint(fields=("day", "model", "provider"), name="one_day"),
        )

    def __str__(self) -> str:
        return f"{self.model} {self.day}"


class MonthTotal(Summed):
    """Daily usage of one person at one client in a month."""

    KEY = ("month", "client_id", "user_id")

    month = models.DateField()
    client_id = models.UUIDField()
    user_id = models.UUIDField()

    class Meta:
        ordering = ("-month", "id")
        constraints = (
            models.UniqueConstraint(fields=("month", "client_id", "user_id"), name="one_month"),
        )

    def __str__(self) -> str:
        return f"{self.month:%Y-%m}"


class CountedMonth(models.Model):
    """The progress of counting a person's month: all before ``from_day`` is counted for good.

    ``version`` is that of the month's totals, which each admission and settlement changes; "" wants it counted again.
    """

    # Without a constraint, whose check would lock totals that calls update.
    month = models.OneToOneField(
        MonthlyUsage,
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="counted",
        db_constraint=False,
    )
    version = models.CharField(max_length=40, blank=True)
    from_day = models.DateField()

    class Meta:
        ordering = ("-month",)
        indexes = (
            models.Index(fields=("month",), condition=Q(version=""), name="months_to_count"),
        )

    def __str__(self) -> str:
        return f"from {self.from_day}"
