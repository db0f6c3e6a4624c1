"""Notifies operators of each alert, when it begins and when it ends, by mail and by webhook.

A row for each alert and channel records what was notified. Changes commit together with the jobs that notify of them,
so a restart or a killed process neither repeats nor loses a notification, and no channel depends on the other.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Protocol

from django.db import transaction
from django.db.models import QuerySet

from config.composition.attention import by_mail, by_webhook, listing
from config.composition.attention.items import Item
from config.composition.attention.operation import WORKER
from config.platform.db.advisory_locks import alone, lock_until_commit
from config.platform.db.connections import release_connection


class Way(Protocol):
    """A channel of notifications; its rows are the alerts that it has notified of."""

    def is_on(self) -> bool: ...

    def rows(self) -> QuerySet[Any]: ...

    def begin(self, item: Item, *, now: datetime) -> None:
        """Records an alert that has begun or become more severe."""

    def resume(self, row: Any, *, now: datetime) -> None:
        """Continues an alert that has begun again before its end was notified."""

    def queue(self, changed: Collection[str], *, is_worked_off: bool, now: datetime) -> None:
        """Queues the notifications of the alerts that have changed."""

    def send(self, *, now: datetime) -> None:
        """Sends pending notifications from this process, because no worker runs."""


WAYS: tuple[Way, ...] = (by_mail, by_webhook)


def notify(*, now: datetime) -> list[str]:
    """Notifies of alerts that have begun or ended, in one process at a time; returns the names of active ones."""
    with alone("operators' watch") as first:
        if not first:
            return []
        ways = [way for way in WAYS if way.is_on()]
        with transaction.atomic():
            # Workers of the previous release hold this lock while they write the rows of the webhook.
            lock_until_commit("told items")
            present = {item.name: item for item in listing.alerts(now=now)}
            for way in ways:
                changed = _compare(way, present, now=now)
                way.queue(changed, is_worked_off=WORKER not in present, now=now)
        if WORKER in present:
            _send(ways, now=now)
        release_connection()
        return sorted(present)


def _compare(way: Way, present: Mapping[str, Item], *, now: datetime) -> Collection[str]:
    """Records the alerts that have begun, become more severe or ended for a channel; returns their names."""
    stored = {row.name: row for row in way.rows()}
    changed = set()
    for name, item in present.items():
        row = stored.get(name)
        if row is None or item.level < row.level:
            way.begin(item, now=now)
            changed.add(name)
        elif row.ended_at:
            way.resume(row, now=now)
    for name in stored.keys() - present.keys():
        if way.rows().filter(name=name, ended_at=None).update(ended_at=now):
            changed.add(name)
    return changed


def _send(ways: Collection[Way], *, now: datetime) -> None:
    """Sends by every channel, and raises the first failure afterwards: the next minute retries."""
    failures = []
    for way in ways:
        try:
            way.send(now=now)
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)
    if failures:
        raise failures[0]
