"""Parses the parameters of the page of usage and money from its address."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from config.console.base import uuid_in
from config.platform.db.replica import Look, look
from config.platform.periods import Period, midnight
from usage.spending.addresses import calls_between
from usage.spending.sums import GROUPS, Scope

YEARS = range(2000, 2100)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The calls, the days of a month or a year, and the ranking to show. Unknown parameters are ignored."""

    scope: Scope
    since: date
    until: date
    is_year: bool
    by: str
    now: Period
    given: Mapping[str, str]
    seen: Look

    @classmethod
    def of(cls, request: HttpRequest) -> "Chosen":
        given = {name: value.strip() for name, value in request.GET.dict().items() if value.strip()}
        at = timezone.now()
        now, seen = Period.of(at), look(now=at)
        period = given.get("period", "")
        year = first_day(period, len("2026"))
        since = year or first_day(period, len("2026-11")) or now.month
        until = since.replace(month=12, day=31) if year else Period(since, since).days[-1]
        scope = Scope(
            client_id=uuid_in(given.get("client")),
            user_id=uuid_in(given.get("person")),
            key_id=uuid_in(given.get("key")),
            model=given.get("model"),
            provider=given.get("provider"),
            using=seen.alias,
        )
        by, first = given.get("by", ""), "person" if scope.client_id else "client"
        by = by if by in GROUPS else first
        return cls(scope, since, until, year is not None, by, now, given, seen)

    @property
    def is_now(self) -> bool:
        """Returns whether the month still runs."""
        return not self.is_year and self.since == self.now.month

    def address(self, **changed: Any) -> str:
        """Returns the address of this page with other choices."""
        chosen = {name: value for name, value in {**self.given, **changed}.items() if value}
        return f"{reverse('admin:usage_and_money')}?{urlencode(chosen)}"

    def calls(self, day: date) -> str:
        """Returns the address of a day's calls, with the filters of this page."""
        scope, begins = self.scope, midnight(day)
        return calls_between(
            begins,
            begins + timedelta(days=1),
            client=scope.client_id,
            person=scope.user_id,
            model=scope.model,
            provider=scope.provider,
            key=scope.key_id,
        )


def first_day(text: str, length: int) -> date | None:
    """Parses a month (2026-11) or a year into its first day; None for any other text or a time without calls."""
    try:
        found = date.fromisoformat(f"{text}-01-01"[: len("2026-11-01")])
    except ValueError:
        return None
    return found if len(text) == length and found.year in YEARS else None
