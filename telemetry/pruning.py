"""Prunes events whose retention time is over."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db import transaction

from telemetry.models import DailyShare, Event

# Some tens of milliseconds each.
BATCH = 5_000
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class Pruned(NamedTuple):
    """The number of events removed (in a dry run, to be removed), and the time from which events are kept."""

    events: int
    kept_from: datetime


def prune(*, now: datetime, dry_run: bool = False, batch: int = BATCH) -> Pruned:
    """Removes events older than ``TELEMETRY_RETENTION_DAYS`` in batches, each in its own transaction.

    Nothing waits for it, because nothing else changes an event. Two runs at once take different events.
    """
    kept_from = now - timedelta(days=settings.TELEMETRY_RETENTION_DAYS)
    if dry_run:
        return Pruned(Event.objects.filter(received_at__lt=kept_from).order_by().count(), kept_from)
    DailyShare.objects.filter(day__lt=kept_from.date()).delete()
    removed, since = 0, _BEGINNING
    while True:
        number, last = _remove(since=since, before=kept_from, batch=batch)
        removed += number
        if number < batch or last is None:
            return Pruned(removed, kept_from)
        # The next batch need not step over the dead rows of this one.
        since = last


def _remove(*, since: datetime, before: datetime, batch: int) -> tuple[int, datetime | None]:
    """Removes the oldest events; returns their number and when the latest of them was received."""
    with transaction.atomic():
        oldest = Event.objects.received_between(since, before).order_by("received_at")
        free = oldest.select_for_update(skip_locked=True).values_list("pk", "received_at")
        found = list(free[:batch])
        Event.objects.filter(pk__in=[pk for pk, _ in found]).delete()
    return len(found), found[-1][1] if found else None
