"""Limits of what calls may cost in a day and a month: all of them, or those to one provider."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from django.db import models
from django.db.models import Q

from config.platform.periods import Period


class Span(NamedTuple):
    """One of a limit's two amounts, in millionths of a dollar, with what was spent of it when it was last counted."""

    name: str
    amount: int
    spent: int
    warned_at: datetime | None
    reached_at: datetime | None
    ends: datetime

    @property
    def percent(self) -> int:
        return 100 * self.spent // self.amount


class SpendLimit(models.Model):
    """An operator's limit for the service ("") or one provider, and what the worker last counted towards it.

    What was counted and reached is of ``day`` and ``month`` alone, so a limit ends at midnight (UTC) by itself.
    """

    # A change by SQL is audited under the name of its row.
    provider = models.CharField(
        max_length=40, unique=True, blank=True, default="", db_column="name"
    )
    daily = models.PositiveBigIntegerField(null=True, help_text="In millionths of a dollar.")
    monthly = models.PositiveBigIntegerField(null=True, help_text="In millionths of a dollar.")
    day = models.DateField(help_text="The day (UTC) that was last counted.")
    day_spent = models.PositiveBigIntegerField(default=0)
    day_warned_at = models.DateTimeField(null=True)
    day_reached_at = models.DateTimeField(null=True)
    month = models.DateField(help_text="First day of the month that was last counted.")
    month_spent = models.PositiveBigIntegerField(default=0)
    month_warned_at = models.DateTimeField(null=True)
    month_reached_at = models.DateTimeField(null=True)
    counted_at = models.DateTimeField()
    passes_on = models.DateField(
        null=True, help_text="The day (UTC) on which calls pass although it is reached."
    )

    class Meta:
        ordering = ("provider",)
        constraints = (
            # A check passes where it compares with NULL.
            models.CheckConstraint(
                condition=Q(daily__isnull=False) | Q(monthly__isnull=False),
                name="spend_limit_is_of_something",
            ),
            # Shares are divided by it.
            models.CheckConstraint(
                condition=~Q(daily=0) & ~Q(monthly=0), name="spend_limit_is_above_zero"
            ),
        )

    def __str__(self) -> str:
        return self.provider or "all providers"

    @property
    def title(self) -> str:
        """Its name where a sentence begins."""
        return self.provider or "All providers"

    def spans(self, now: datetime) -> Iterator[Span]:
        """Yields the day and the month that it limits, unless the worker has not counted them yet."""
        period = Period.of(now)
        if self.daily is not None and self.day == period.day:
            at = self.day_warned_at, self.day_reached_at
            yield Span("day", self.daily, self.day_spent, *at, period.next_day)
        if self.monthly is not None and self.month == period.month:
            at = self.month_warned_at, self.month_reached_at
            yield Span("month", self.monthly, self.month_spent, *at, period.next_month)

    def stopped_until(self, now: datetime) -> datetime | None:
        """The end of the longer span that is reached; None while calls pass."""
        if self.passes(now):
            return None
        return max((each.ends for each in self.spans(now) if each.reached_at), default=None)

    def passes(self, now: datetime) -> bool:
        """Returns whether an operator lets calls pass today."""
        return self.passes_on == Period.of(now).day
