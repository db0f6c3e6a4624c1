"""How much came in: events of a day by app and shell version."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from django.db.models import Count, QuerySet

from telemetry.models import Event


class Volume(NamedTuple):
    """The events of one app (empty: the shell itself) and shell version on one day."""

    app: str
    shell_version: str
    events: int


def volumes(*, day: date) -> list[Volume]:
    """Of the events received on a day (UTC), the largest first. Reads that day's events, by index."""
    found = (Volume(*row) for row in counted(day=day))
    return sorted(found, key=lambda each: (-each.events, each.app, each.shell_version))


def counted(*, day: date) -> QuerySet[Event, Any]:
    """The question itself: rows of app, shell version and number, in no order."""
    begin = datetime.combine(day, time(), UTC)
    return (
        Event.objects.filter(received_at__gte=begin, received_at__lt=begin + timedelta(days=1))
        .order_by()
        .values_list("app", "shell_version")
        .annotate(events=Count("pk"))
    )
