"""The period in which the calls of a list were admitted: the last days, a month, or from one instant until another."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict
from django.utils import timezone

from config.console.base import uuid_in
from config.console.lists.typed import ChosenFilter, Field, TypedFilter, Unknown, instant_of
from config.console.template_tags import counted
from config.platform.periods import Period, last_months
from usage.admin.money.choosing import first_day

DAYS = {"1": "24 hours", "7": "7 days", "30": "30 days", "90": "90 days"}
FIRST, MOST_DAYS = "7", 999
MONTHS_SHOWN = 13
DAY_NAMES = ("days", "month")
SINCE, UNTIL = "opened_at__gte", "opened_at__lt"
# Lookups of releases before, which show calls of any time, as a search does.
ANY_TIME = (
    "user__id__exact",
    "client_id__exact",
    "end__exact",
    "state__exact",
    "source__exact",
)


class Bounds(NamedTuple):
    """The first instant of a period, and the first one after it; None: no bound."""

    since: datetime | None = None
    until: datetime | None = None

    def of(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        rows = rows.filter(opened_at__gte=self.since) if self.since else rows
        return rows.filter(opened_at__lt=self.until) if self.until else rows

    def by_month(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of its months, which are in the indexes by person and by key."""
        rows = rows.filter(period__gte=Period.of(self.since).month) if self.since else rows
        return rows.filter(period__lte=Period.of(self.until).month) if self.until else rows


def with_period(given: QueryDict) -> QueryDict:
    """Returns the parameters of a list, with the period that it shows where none is chosen."""
    chosen = {name for name in given if (given.get(name) or "").strip()}
    if chosen & {"q", *DAY_NAMES, SINCE, UNTIL, *ANY_TIME}:
        return given
    given = given.copy()
    given["days"] = FIRST
    return given


def bounds_of(request: HttpRequest) -> Bounds:
    """Returns the period that an address chooses, as far as it can be understood."""
    given, found = request.GET, Bounds()
    if _is_of_any_time(request):
        return found
    with suppress(Unknown):
        if _is_exact(request):
            since, until = (given.get(name, "").strip() for name in (SINCE, UNTIL))
            return Bounds(
                instant_of(since) if since else None, instant_of(until) if until else None
            )
        days = next((given[name] for name in DAY_NAMES if given.get(name)), "")
        found = _days(days.strip()) if days else found
    return found


class PeriodFilter(ChosenFilter):
    """The last days, or a month such as 2026-11. An exact period counts instead, and an id finds a call of any time."""

    title, names, is_first = "period", DAY_NAMES, True

    def options(self) -> Sequence[tuple[str, str]]:
        months = last_months(Period.of(timezone.now()).day, MONTHS_SHOWN)
        own = self.given if self.given.isdecimal() and self.given not in DAYS else ""
        without = "Exact" if _is_exact(self.request) else "Any time"
        return [
            *([] if self.shown else [("", without)]),
            *DAYS.items(),
            *([(own, counted(int(own), "day"))] if own else ()),
            *((f"{day:%Y-%m}", f"{day:%B %Y}") for day in months),
        ]

    @property
    def shown(self) -> str:
        is_ignored = _is_exact(self.request) or _is_of_any_time(self.request)
        return "" if is_ignored else self.given

    @property
    def words(self) -> str:
        """The days or the month; "" for an exact period and any time."""
        return dict(self.options()).get(self.shown, "") if self.shown else ""

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return _days(value).of(rows) if self.shown else rows


class ExactPeriodFilter(TypedFilter):
    """From one instant until another, in UTC; either may be empty."""

    title, names = "exact period", (SINCE, UNTIL)

    @property
    def fields(self) -> list[Field]:
        return [
            Field(name, label, _local(str(self.used_parameters.get(name, ""))), "datetime-local")
            for name, label in ((SINCE, "From (UTC)"), (UNTIL, "Until (UTC)"))
        ]

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        since, until = (
            instant_of(str(self.used_parameters[name])) if name in self.used_parameters else None
            for name in self.names
        )
        return rows if _is_of_any_time(self.request) else Bounds(since, until).of(rows)


def _days(value: str) -> Bounds:
    if month := first_day(value, len("2026-11")):
        period = Period(month, month)
        return Bounds(period.month_start, period.next_month)
    if not (value.isascii() and value.isdecimal() and 0 < int(value) <= MOST_DAYS):
        raise Unknown(
            f"“{value}” is no period. Enter a number of days, or a month such as 2026-11."
        )
    return Bounds(timezone.now() - timedelta(days=int(value)))


def _is_exact(request: HttpRequest) -> bool:
    return any(request.GET.get(name, "").strip() for name in (SINCE, UNTIL))


def _is_of_any_time(request: HttpRequest) -> bool:
    """Returns whether an id is looked for, whose call may be of any time."""
    return uuid_in(request.GET.get("q")) is not None


def _local(typed: str) -> str:
    """Returns an instant as its input has it."""
    try:
        at = instant_of(typed).replace(tzinfo=None)
    except Unknown:
        return ""
    return at.isoformat(timespec="seconds" if at.second else "minutes")
