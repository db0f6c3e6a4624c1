"""Volumes: the number of events of a day by app and shell version.

A nightly job counts each day once it is over and stores the result, which outlives the events. Any other day is
counted when its volumes are read.
"""

from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import Count, Max, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from telemetry.models import DailyVolume, Event

# A shell may report any number of versions; the smallest of a day share one line.
MOST = 1_000
# App and version of that line; no real app or version has this name.
REST = "*"
# By then every batch received before midnight is committed or has failed.
SETTLED = timedelta(minutes=10)
_DAY = timedelta(days=1)
_BEGINNING = date(1970, 1, 1)


class Volume(NamedTuple):
    """The events of one app (empty: the shell itself) and shell version on one day; ``REST`` for all others."""

    app: str
    shell_version: str
    events: int


class Counted(NamedTuple):
    """The number of days counted and of their events."""

    days: int
    events: int


def volumes(*, day: date) -> list[Volume]:
    """The volumes of a day (UTC): at most 1,000, the largest first, then ``REST``."""
    found = _stored(day) if day <= _last_day() else _counted(day)
    return sorted(found, key=lambda each: (each.app == REST, -each.events, *each[:2]))


def last_by_shell_version() -> tuple[date | None, list[tuple[str, int]]]:
    """The last counted day, and the events of each shell version on it, the most first; a few rows by index."""
    day = DailyVolume.objects.aggregate(last=Max("day"))["last"]
    known = DailyVolume.objects.filter(day=day).exclude(shell_version__in=("", REST)).order_by()
    counted = known.values_list("shell_version").annotate(number=Sum("events"))
    return day, list(counted.order_by("-number", "shell_version"))


def people_by_shell_version(day: date) -> list[tuple[str, int]]:
    """The number of people with each shell version on a day, the most first: the last that their events name.

    A person of whom no event names one is counted for "". Events name no device, so people stand for shells.
    """
    received = Event.objects.received_between(midnight(day), midnight(day + _DAY)).order_by()
    named = Max("id", filter=~Q(shell_version=""))
    last = received.values("user_id").annotate(last=Coalesce(named, Max("id"))).values("last")
    counted = Event.objects.filter(pk__in=last).order_by().values_list("shell_version")
    numbered = counted.annotate(number=Count("*"))
    return list(numbered.order_by("-number", "shell_version"))


def count_days(*, now: datetime, dry_run: bool = False) -> Counted:
    """Counts and stores each day that is over and not stored yet, the oldest first."""
    day, last = _first_uncounted(), (now - SETTLED).astimezone(UTC).date() - _DAY
    days = events = 0
    while day is not None and day <= last:
        found = _counted(day)
        if not dry_run:
            _store(day, found)
        days, events = days + 1, events + sum(each.events for each in found)
        day += _DAY
    return Counted(days, events)


def _last_day() -> date:
    """The last stored day. A later day without events stores nothing, and is as quick to count."""
    last: date | None = DailyVolume.objects.aggregate(last=Max("day"))["last"]
    return last or _BEGINNING


def _first_uncounted() -> date | None:
    """The day of the first event after the stored days, or None."""
    begin = midnight(_last_day() + _DAY)
    later = Event.objects.filter(received_at__gte=begin).order_by("received_at")
    at: datetime | None = later.values_list("received_at", flat=True).first()
    return at and at.astimezone(UTC).date()


def _stored(day: date) -> list[Volume]:
    rows = DailyVolume.objects.filter(day=day).values_list("app", "shell_version", "events")
    return [Volume(*row) for row in rows]


def _store(day: date, found: list[Volume]) -> None:
    # A whole day in one statement. A run at the same time counts the same.
    DailyVolume.objects.bulk_create(
        (DailyVolume(day=day, **each._asdict()) for each in found), ignore_conflicts=True
    )


def by_version(day: date) -> "QuerySet[Event, tuple[str, str, int]]":
    """App, shell version and number of events of a day, the largest first; read by index."""
    received = Event.objects.received_between(midnight(day), midnight(day + _DAY))
    counted = received.values_list("app", "shell_version").annotate(events=Count("*"))
    return counted.order_by("-events", "app", "shell_version")


def _counted(day: date) -> list[Volume]:
    found: list[Volume] = []
    rest = 0
    # The transaction keeps the cursor on one connection where a pooler stands in between.
    with transaction.atomic():
        for app, version, events in by_version(day).iterator():
            if len(found) < MOST:
                found.append(Volume(app, version, events))
            else:
                rest += events
    return [*found, Volume(REST, REST, rest)] if rest else found


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
