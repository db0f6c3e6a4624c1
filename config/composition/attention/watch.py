"""Mails operators about a worker, a queue or a nightly job that stands still.

Web processes watch, because a stopped worker cannot report itself. An alert is raised once, as an audit event and a
mail, again each day while it lasts, and cleared by another event when it is over. While no worker runs, this process
sends the mail and posts the message itself.
"""

import logging
import random
import threading
from contextlib import suppress
from datetime import datetime, timedelta
from time import monotonic

from django.conf import settings
from django.db import transaction

from accounts.audit import Actor, record
from accounts.models import AuditEvent
from config.composition.attention import listing, telling
from config.composition.attention.items import Item
from config.composition.attention.operation import STILL_AFTER, WORKER
from config.platform.db.advisory_locks import alone
from config.platform.db.connections import database_now, release_connection
from config.platform.jobs.mail import Refused, deliver, for_operators, queue_for_operators

log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
AGAIN_AFTER = timedelta(hours=24)
RAISED, CLEARED = "alarm:raised", "alarm:cleared"
WATCH = Actor(name="the watch")


def watch(*, now: datetime) -> list[str]:
    """Raises and clears alerts, in one process at a time; returns the names of those that hold."""
    with alone("operators' watch") as first:
        if not first:
            return []
        alerts = (each for each in listing.alerts(now=now) if not _is_mailed_by_rule(each))
        present = {item.name: item for item in alerts}
        standing = _standing()
        for name in standing.keys() - present.keys():
            record(CLEARED, name, by=WATCH, now=now, target_id=name)
        for name, item in present.items():
            if name not in standing or standing[name] < now - AGAIN_AFTER:
                _raise(item, by_hand=WORKER in present, now=now)
        if WORKER in present:
            telling.tell_by_hand(now=now)
        release_connection()
        return sorted(present)


def _is_mailed_by_rule(item: Item) -> bool:
    return item.kind.alert is not None and item.kind.alert.is_mailed_by_rule


def _standing() -> dict[str, datetime]:
    """The alerts that were raised and not cleared, each with the time it was last raised."""
    newest = (
        AuditEvent.objects.filter(action__in=(RAISED, CLEARED))
        .order_by("target", "-at", "-id")
        .distinct("target")
    )
    return {event.target: event.at for event in newest if event.action == RAISED}


def _raise(item: Item, *, by_hand: bool, now: datetime) -> None:
    """Sends the mail and writes the event. A mail that cannot be sent is tried again a minute later.

    A mail that is refused for good is not; the console shows it.
    """
    if item.name == WORKER:
        log.error("worker_stands_still")
    (subject, text), (page, meaning) = item.notice(), telling.links(item)
    text += f"\n\n[What to do] {meaning}"
    if by_hand and settings.OPERATOR_EMAILS:
        with suppress(Refused):
            mail = for_operators(subject=subject, text=text, path=page)
            deliver(to=settings.OPERATOR_EMAILS, **mail._asdict())
    with transaction.atomic():
        after = {"says": subject}
        record(RAISED, item.name, by=WATCH, now=now, target_id=item.name, after=after)
        if not by_hand:
            queue_for_operators(subject=subject, text=text, path=page)


def start() -> threading.Thread:
    """Counts for the sidebar every minute, and watches too once a worker has had time to start."""
    thread = threading.Thread(target=_look_for_ever, name="watch", daemon=True)
    thread.start()
    return thread


def _look_for_ever() -> None:
    pause, began = threading.Event(), monotonic()
    while True:
        try:
            # By the database's clock: a wrong clock of this host must raise no alert.
            now = database_now()
            listing.look(now=now)
            if monotonic() - began > STILL_AFTER.total_seconds():
                watch(now=now)
        except Exception:
            # Tried again a minute later, for instance once the database answers.
            log.warning("watch_failed", exc_info=True)
        release_connection()
        # Spreads processes that started together.
        pause.wait(EVERY_SECONDS * random.uniform(0.8, 1.2))  # nosec B311 # noqa: S311 - no secret
