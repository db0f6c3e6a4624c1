"""Notifies a chat channel of the operators: a job for each alert posts to ``ALERT_WEBHOOK_URL`` in Slack's format.

A worker that is killed between a post and its mark posts it again.
"""

import json
import time
from collections.abc import Collection
from datetime import datetime
from html import escape

from django.conf import settings
from django.db.models import QuerySet

from config.composition.attention.items import Item
from config.models import Notification
from config.platform.db.connections import database_now, release_connection
from config.platform.http.errors import Broken
from config.platform.http.exchange import exchange_once
from config.platform.jobs.queue import BACKOFF, task


def is_on() -> bool:
    return bool(settings.ALERT_WEBHOOK_URL())


def rows() -> QuerySet[Notification]:
    return Notification.objects.all()


def begin(item: Item, *, now: datetime) -> None:
    """Records an alert that has begun or become more severe."""
    values = {"text": _text(item), "level": item.level, "notified_at": None, "ended_at": None}
    Notification.objects.update_or_create(name=item.name, defaults=values)


def resume(row: Notification, *, now: datetime) -> None:
    """Continues an alert, unless a job has notified of its end meanwhile."""
    rows().filter(pk=row.pk).update(ended_at=None)


def queue(changed: Collection[str], *, is_worked_off: bool, now: datetime) -> None:
    """Queues a post about each alert that has changed, even without a worker: the next worker finds its job."""
    for row in rows().filter(name__in=changed).order_by("pk"):
        # The lock prevents two workers from posting about one alert concurrently.
        post.configure(lock=f"told item {row.pk}").defer(pk=row.pk)


def send(*, now: datetime) -> None:
    """Posts pending notifications without a worker; their jobs then have nothing to do."""
    for pk in rows().values_list("pk", flat=True):
        post(pk)


@task(name="attention.post", title="Post an alert to the webhook", queue="mail", retry=BACKOFF)
def post(pk: int) -> None:
    """Posts an alert's pending beginning and end, at least once: a crash before they are marked repeats them."""
    if not is_on():
        _forget(pk)
        return
    row = Notification.objects.filter(pk=pk).first()
    if row and row.notified_at is None:
        _post(row.text)
        # Not if it has become more severe meanwhile, which another job notifies of.
        Notification.objects.filter(pk=pk, level=row.level).update(notified_at=database_now())
        row = Notification.objects.filter(pk=pk).first()
    if row and row.notified_at and row.ended_at:
        _post(f"Over: {row.text}")
        row.delete()


def _forget(pk: int) -> None:
    """Forgets pending notifications, so that they are found again once there is an address."""
    Notification.objects.filter(pk=pk, notified_at=None).delete()
    Notification.objects.filter(pk=pk).update(ended_at=None)


def _text(item: Item) -> str:
    """Returns the subject, with clients' names escaped for Slack, and the addresses."""
    subject, _ = item.notice()
    page = f"{settings.BASE_URL}{item.page}"
    return f"{escape(subject, quote=False)}\n{page}\nWhat to do: {item.what_to_do}"


def _post(text: str) -> None:
    release_connection()
    if not (url := settings.ALERT_WEBHOOK_URL()):
        return
    with exchange_once(
        "POST",
        url,
        headers={"Content-Type": "application/json"},
        body=json.dumps({"text": text}).encode(),
        limit=64 * 1024,
        silence=10.0,
        deadline=time.monotonic() + 30.0,
    ) as exchange:
        status = exchange.await_head().status
    if not 200 <= status < 300:
        raise Broken(f"The webhook answered {status}.", sent=True)
