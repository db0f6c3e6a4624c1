"""Kinds of attention about releases."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, Q, QuerySet

from config.platform.attention import Alert, Finding, Kind, Level, kinds
from licensing.models import Licence, ServiceNotice
from releases.delivery.cdn import is_purged
from releases.delivery.purging import TOLD_AFTER
from releases.levers import out_of_reach
from releases.models import Publication, Purge, ShellChannel

STORE_OVERDUE = timedelta(minutes=5)


def channels(rows: QuerySet[ShellChannel], now: datetime) -> Iterator[Any]:
    """Halted channels, and those whose offer has not reached storage in its time."""
    for each in rows:
        if each.halted_at:
            yield Finding(pk=each.pk, channel=each, is_halted=True, since=each.halted_at)
        if each.unplaced_since and each.unplaced_since < now - STORE_OVERDUE:
            since = each.unplaced_since
            yield Finding(pk=each.pk, channel=each, is_halted=False, since=since, acts="")


def not_stored(now: datetime) -> Iterator[Publication]:
    newest = Publication.objects.order_by("release__channel_id", "-pk").distinct(
        "release__channel_id"
    )
    for each in newest.select_related("release__channel").defer("signature", "release__manifest"):
        is_late = each.published_at < now - STORE_OVERDUE
        if each.stored_at is None and is_late and not each.is_partial:
            yield each


def not_purged(now: datetime) -> list[Purge]:
    newest: Any = Purge.objects.newest().select_related("channel") if is_purged() else ()
    failed = [each for each in newest if each.failed]
    for each in failed:
        # One failure may be a publish in a hurry; the rule mails the second.
        each.is_alert = each.attempts >= TOLD_AFTER
    return failed


def below_minimum(rows: QuerySet[ShellChannel], now: datetime) -> Iterator[Finding]:
    """Channels whose shells show an update screen and find no update, however that came about."""
    known = {each.pk: each for each in rows}
    for name, offered, ((whose, minimum), *others) in out_of_reach(known):
        yield Finding(
            pk=name,
            channel=known[name],
            offered=offered,
            whose=whose,
            minimum=minimum,
            others=len(others),
        )


HAS_MINIMUM = Q(
    Exists(Licence.objects.exclude(minimum_version=""))
    | Exists(ServiceNotice.objects.exclude(minimum_version=""))
)
CHANNELS, CHANNEL = "Channels", "releases.view_shellchannel"
kinds.add(
    Kind(
        "channel", 240, CHANNELS, CHANNEL,
        ShellChannel.objects.filter(Q(halted_at__isnull=False) | Q(unplaced_since__isnull=False)),
        Level.ACT, on="channel", acts="roll_back resume", then=channels,
    ),
    Kind(
        "below_minimum", 245, CHANNELS, CHANNEL, ShellChannel.objects.filter(HAS_MINIMUM), Level.ACT,
        on="channel", acts="resume", then=below_minimum,
        alert=Alert("Publish a newer version, resume the channel, or lower the minimum.", "at once"),
    ),
    Kind("not_stored", 250, CHANNELS, CHANNEL, not_stored, Level.ACT, "published_at"),
    Kind(
        "not_purged", 260, CHANNELS, CHANNEL, not_purged, Level.WATCH, "asked_at",
        "channel", "purge",
        alert=Alert("Purge again; check `CDN_PURGE`.", "a second failure", is_mailed_by_rule=True),
    ),
)  # fmt: skip
