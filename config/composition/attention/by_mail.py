"""Notifies the addresses of ``OPERATOR_EMAILS``, with an audit event for each alert that is raised or cleared.

A worker sends the mails, in order for each alert and address. While none runs, this process sends them itself.
Without addresses the events are recorded all the same, and mails wait until there are some.
"""

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from accounts.audit import Actor, record
from accounts.models import AuditEvent
from config.composition.attention.items import Item
from config.composition.attention.operation import WORKER
from config.models import MailNotification
from config.platform.jobs.mail import Refused, deliver, for_operators, queue_for_operators

log = logging.getLogger(__name__)

RAISED, CLEARED = "alarm:raised", "alarm:cleared"
WATCH = Actor(name="the watch")
ENDED = "The condition of this alert has ended."
# The previous release repeats the mail of a lasting alert after 24 hours.
REPEATED_WITHIN = timedelta(hours=25)
# Sends a mail with a subject and a text about a row.
Send = Callable[[MailNotification, str, str], None]


def is_on() -> bool:
    """Returns True: without addresses, too, events are recorded."""
    return True


def rows() -> QuerySet[MailNotification]:
    return MailNotification.objects.all()


def begin(item: Item, *, now: datetime) -> None:
    """Records an alert that has begun or become more severe."""
    subject, text = item.notice()
    is_raised = _is_raised(item.name, now=now)
    is_mailed = settings.OPERATOR_EMAILS and (item.is_mailed_by_rule or is_raised)
    values = {
        "level": item.level,
        "subject": subject,
        "text": f"{text}\n\n[What to do] {item.what_to_do}".strip(),
        "path": item.page,
        "notified_at": now if is_mailed else None,
        "ended_at": None,
    }
    row, _ = MailNotification.objects.update_or_create(name=item.name, defaults=values)
    if item.name == WORKER:
        log.error("worker_stands_still")
    if not is_raised and (item.is_mailed_by_rule or not settings.OPERATOR_EMAILS):
        _record_raised(row, now=now)


def resume(row: MailNotification, *, now: datetime) -> None:
    """Continues an alert. Without addresses its end is recorded already, so this is another beginning."""
    row.ended_at = None
    row.save(update_fields=["ended_at"])
    last = _last_event(row.name)
    if row.notified_at and last and last.action == CLEARED:
        _record_raised(row, now=now)


def queue(changed: Collection[str], *, is_worked_off: bool, now: datetime) -> None:
    """Queues pending notifications, including those that no process could send without a worker."""
    for row in _waiting() if is_worked_off else ():
        _notify(row, _queue, now=now)


def send(*, now: datetime) -> None:
    """Sends pending notifications without a worker. After a temporary failure the next minute retries.

    A permanently refused mail is not retried; the console shows the alert.
    """
    for row in _waiting():
        _notify(row, _deliver, now=now)


def _is_raised(name: str, *, now: datetime) -> bool:
    """Returns whether the previous release, which stores no row, has recently mailed operators about this alert.

    It repeats its mail each day. An older mail is about an alert that ended while no process watched.
    """
    last = _last_event(name)
    is_lately = last and last.action == RAISED and last.at > now - REPEATED_WITHIN
    return bool(is_lately) and not rows().filter(name=name).exists()


def _waiting() -> list[MailNotification]:
    waiting = Q(notified_at=None) | Q(ended_at__isnull=False)
    return list(rows().filter(waiting).order_by("pk"))


def _notify(row: MailNotification, send: Send, *, now: datetime) -> None:
    """Mails an alert's pending beginning and end, at least once: a crash before they are marked repeats them."""
    if not settings.OPERATOR_EMAILS:
        _end_unsent(row, now=now)
        return
    if row.notified_at is None:
        send(row, row.subject, row.text)
        row.notified_at = now
        with transaction.atomic():
            row.save(update_fields=["notified_at"])
            _record_raised(row, now=now)
    if row.ended_at:
        send(row, f"Over: {row.subject}", ENDED)
        with transaction.atomic():
            row.delete()
            _record_cleared(row, now=now)


def _end_unsent(row: MailNotification, *, now: datetime) -> None:
    """Records the end of an alert. Its mail waits for addresses if its beginning was mailed to some."""
    if row.ended_at is None:
        return
    with transaction.atomic():
        _record_cleared(row, now=now)
        if row.notified_at is None:
            row.delete()


def _record_raised(row: MailNotification, *, now: datetime) -> None:
    """Records the beginning, or that it has become graver, unless that was recorded before there were addresses."""
    last, after = _last_event(row.name), {"says": row.subject}
    if last is None or (last.action, last.after) != (RAISED, after):
        record(RAISED, row.name, by=WATCH, now=now, target_id=row.name, after=after)


def _record_cleared(row: MailNotification, *, now: datetime) -> None:
    """Records the end, unless the release before has: it clears whatever it would not mail itself."""
    last = _last_event(row.name)
    if last.action == RAISED if last else row.notified_at:
        record(CLEARED, row.name, by=WATCH, now=now, target_id=row.name)


def _last_event(name: str) -> AuditEvent | None:
    events = AuditEvent.objects.filter(action__in=(RAISED, CLEARED), target_id=name)
    return events.order_by("-at", "-id").first()


def _queue(row: MailNotification, subject: str, text: str) -> None:
    queue_for_operators(subject=subject, text=text, path=row.path, lock=f"alert {row.name}")


def _deliver(row: MailNotification, subject: str, text: str) -> None:
    mail = for_operators(subject=subject, text=text, path=row.path)
    with suppress(Refused):
        deliver(to=settings.OPERATOR_EMAILS, **mail._asdict())
