"""Rows for each kind of attention about releases."""

from licensing.models import Licence
from releases.models import Publication, Purge, ShellChannel
from tests.console.bad_days import HOUR, Day

# Kinds of the worst day alone.
QUIET = {"below_minimum"}


def bad_day(day: Day) -> None:
    day.settings.CDN_PURGE = "purge"
    ShellChannel.objects.update(halted_at=day.now)
    Publication.objects.update(stored_at=None, published_at=day.now - HOUR)
    channel = ShellChannel.objects.get()
    tried = {"asked_at": day.now, "tried_at": day.now, "due_at": day.now, "attempts": 2}
    Purge.objects.create(channel=channel, failure="old_bytes", **tried)


def worst_day(day: Day) -> None:
    """A minimum version that no channel offers."""
    Licence.objects.filter(client=day.world.client).update(minimum_version="99.0.0")
