"""Calendar months and days in UTC. A period is part of a row's key, so nothing is ever reset."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta


@dataclass(frozen=True, slots=True)
class Period:
    """The month and day an instant falls into."""

    month: date
    day: date

    @classmethod
    def of(cls, at: datetime) -> "Period":
        day = at.astimezone(UTC).date()
        return cls(month=day.replace(day=1), day=day)

    @property
    def month_start(self) -> datetime:
        return midnight(self.month)

    @property
    def next_month(self) -> datetime:
        # The 1st and 31 days later is always in the next month.
        return midnight((self.month + timedelta(days=31)).replace(day=1))

    @property
    def days(self) -> list[date]:
        """All days of the month."""
        number = (self.next_month.date() - self.month).days
        return [self.month + timedelta(days=after) for after in range(number)]

    @property
    def next_day(self) -> datetime:
        return midnight(self.day + timedelta(days=1))


def last_months(today: date, number: int) -> list[date]:
    """The first days of this month and of those before it, the newest first."""
    newest = today.year * 12 + today.month - 1
    months = (divmod(newest - back, 12) for back in range(number))
    return [date(year, month + 1, 1) for year, month in months]


def midnight(day: date) -> datetime:
    """Returns the beginning of a day."""
    return datetime.combine(day, time.min, UTC)
