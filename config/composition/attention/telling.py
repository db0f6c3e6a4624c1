"""Tells a channel of the operators what needs attention, once, and once more when it is over.

The worker looks each minute, and a job posts to ``ALERT_WEBHOOK_URL`` as Slack takes it. A row holds what was told, so
that restarts and several workers tell it once. A worker that is killed between post and mark tells it twice.
"""

import json
import time
from datetime import datetime
from html import escape

from django.conf import settings
from django.db import transaction
from django.urls import reverse

from config.composition.attention import listing
from config.composition.attention.items import Item
from config.models import ToldItem
from config.platform.db.advisory_locks import lock_until_commit
from config.platform.db.connections import database_now, release_connection
from config.platform.http.errors import Broken
from config.platform.http.exchange import exchange_once
from config.platform.jobs.queue import BACKOFF, task


def tell(*, now: datetime) -> None:
    """Notes what has appeared and what is over, and queues its messages."""
    if not settings.ALERT_WEBHOOK_URL():
        return
    with transaction.atomic():
        lock_until_commit("told items")
        present = {item.name: item for item in listing.alerts(now=now)}
        known = {row.name: row for row in ToldItem.objects.all()}
        for name, item in present.items():
            row = known.get(name)
            if row is None or item.level < row.level:
                anew = {"text": _text(item), "level": item.level, "told_at": None, "over_at": None}
                _queue(ToldItem.objects.update_or_create(name=name, defaults=anew)[0])
            elif row.over_at:
                ToldItem.objects.filter(pk=row.pk).update(over_at=None)
        for name in known.keys() - present.keys():
            if ToldItem.objects.filter(name=name, over_at=None).update(over_at=now):
                _queue(known[name])


def tell_by_hand(*, now: datetime) -> None:
    """Tells without a worker; for the web process that notices that none runs."""
    tell(now=now)
    for pk in ToldItem.objects.values_list("pk", flat=True):
        post(pk)


@task(name="attention.post", queue="mail", retry=BACKOFF)
def post(pk: int) -> None:
    """Posts what is not told of an item yet, and again after a crash before it was marked."""
    row = ToldItem.objects.filter(pk=pk).first()
    if row and row.told_at is None:
        _send(row.text)
        # Not if it has become graver meanwhile, which another job tells.
        ToldItem.objects.filter(pk=pk, level=row.level).update(told_at=database_now())
        row = ToldItem.objects.filter(pk=pk).first()
    if row and row.told_at and row.over_at:
        _send(f"Over: {row.text}")
        row.delete()


def links(item: Item) -> tuple[str, str]:
    """The path of the console's page about an item, and the address of what to do."""
    page = reverse(f"admin:{item.kind.right.replace('.view_', '_')}_changelist")
    return page, f"{settings.BASE_URL}{reverse('admin:alerts')}#{item.kind.name}"


def _text(item: Item) -> str:
    """The subject, in which names of clients are no markup of Slack's, and addresses."""
    (subject, _), (page, meaning) = item.notice(), links(item)
    return f"{escape(subject, quote=False)}\n{settings.BASE_URL}{page}\nWhat to do: {meaning}"


def _queue(row: ToldItem) -> None:
    # The lock keeps two workers from telling one item at once.
    post.configure(lock=f"told item {row.pk}").defer(pk=row.pk)


def _send(text: str) -> None:
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
        raise Broken(f"The webhook answers {status}.", sent=True)
