"""How much came in: events of a day by app and shell version.

A day that is over is counted once, in the night, and written down; asking for it then reads some rows, however many
events there are, and also when they have been pruned. A day that was not counted yet is counted when it is asked for.
"""

from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from django.db import connection
from django.db.models import Max

from telemetry.models import DailyVolume, Event

# Whoever reports may make up versions without end; the smallest of a day are one line together.
MOST = 1_000
# App and version of that line; no app and no version is written so.
REST = "*"
# A batch that came before midnight has been committed or given up by then.
SETTLED = timedelta(minutes=10)
_DAY = timedelta(days=1)
_BEGINNING = date(1970, 1, 1)


class Volume(NamedTuple):
    """The events of one app (empty: the shell itself) and shell version on one day; ``REST`` for all others."""

    app: str
    shell_version: str
    events: int


class Counted(NamedTuple):
    """What was written down: days, and events on them."""

    days: int
    events: int


def volumes(*, day: date) -> list[Volume]:
    """Of the events received on a day (UTC), the largest first, ``REST`` last; 1,000 and ``REST`` at most."""
    found = _written(day) if day <= _last_day() else _counted(day)
    return sorted(found, key=lambda each: (each.app == REST, -each.events, *each[:2]))


def count_days(*, now: datetime, dry_run: bool = False) -> Counted:
    """Writes down the days that are over and were not yet, the oldest first, each by itself."""
    day, last = _first_uncounted(), (now - SETTLED).astimezone(UTC).date() - _DAY
    days = events = 0
    while day is not None and day <= last:
        found = _counted(day)
        if not dry_run:
            _write(day, found)
        days, events = days + 1, events + sum(each.events for each in found)
        day += _DAY
    return Counted(days, events)


def _last_day() -> date:
    """The last that was written down. A later one without any event leaves nothing, and is as quick to count."""
    last: date | None = DailyVolume.objects.aggregate(last=Max("day"))["last"]
    return last or _BEGINNING


def _first_uncounted() -> date | None:
    """The day of the first event after the days that were written down; None where there is none."""
    begin = _midnight(_last_day() + _DAY)
    later = Event.objects.filter(received_at__gte=begin).order_by("received_at")
    at: datetime | None = later.values_list("received_at", flat=True).first()
    return at and at.astimezone(UTC).date()


def _written(day: date) -> list[Volume]:
    rows = DailyVolume.objects.filter(day=day).values_list("app", "shell_version", "events")
    return [Volume(*row) for row in rows]


def _write(day: date, found: list[Volume]) -> None:
    # All of a day or nothing. Who counted it at the same time found the same.
    DailyVolume.objects.bulk_create(
        (DailyVolume(day=day, **each._asdict()) for each in found), ignore_conflicts=True
    )


COUNT = """
WITH counted AS (
    SELECT app, shell_version, count(*) AS events FROM telemetry_event
    WHERE received_at >= %(begin)s AND received_at < %(end)s
    GROUP BY app, shell_version
), ranked AS (
    SELECT app, shell_version, events,
           row_number() OVER (ORDER BY events DESC, app, shell_version) <= %(most)s AS stands
    FROM counted
)
SELECT CASE WHEN stands THEN app ELSE %(rest)s END AS app,
       CASE WHEN stands THEN shell_version ELSE %(rest)s END AS shell_version, sum(events)::bigint
FROM ranked GROUP BY 1, 2
"""


def _counted(day: date) -> list[Volume]:
    """Reads that day's events, by index."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT, counting(day))
        return [Volume(*row) for row in cursor.fetchall()]


def counting(day: date) -> dict[str, datetime | int | str]:
    """What ``COUNT`` is given for a day."""
    return {"begin": _midnight(day), "end": _midnight(day + _DAY), "most": MOST, "rest": REST}


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
