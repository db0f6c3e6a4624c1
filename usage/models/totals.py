"""The running totals of people and of personal keys."""

from django.conf import settings
from django.db import models
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
    ``day`` only and start anew with a later day. One row, so that admission is one conditional update. ``granted`` is
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
