"""Purges the CDN until it serves the content of storage.

A purge is a row and a queued job, written in the transaction that causes it, so that a worker completes it after a
crash. The publishing request does not wait for the worker: it makes the first try. Only the newest purge of a channel
counts, because the CDN has to serve only the current release.
"""

import logging
import time
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import DatabaseError, transaction
from django.db.models import F
from django.urls import reverse
from procrastinate.contrib.django import app

from accounts.audit import Actor, record
from config.platform.db.connections import release_connection
from config.platform.jobs.mail import queue_for_operators
from config.platform.runtime.clock import clock_from
from releases.delivery import cdn
from releases.delivery.storage import SIGNATURE_SUFFIX, pointer_path
from releases.models import Publication, Purge, ShellChannel

READ_BACK_SECONDS = 10.0
PAUSE_SECONDS = 0.5
# By then, readers from before the purge have finished filling caches.
SETTLED_SECONDS = 0.2
# After the try of the publishing request.
FIRST_PAUSE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(minutes=10)
# The answer to the publish reports one failure; a mail to operators reports the second.
TOLD_AFTER = 2
OVERDUE = timedelta(minutes=5)
BY = Actor(name="the worker")

log = logging.getLogger(__name__)


def ask(*, channel: str, publication: Publication | None, now: datetime) -> Purge | None:
    """Queues a purge after which the CDN serves this publication (None: nothing), unless the same one is pending.

    A confirmed purge does not count: caches may have changed since. Returns None without a configured purge. Call it
    in the transaction of the change in storage.
    """
    if not cdn.is_purged():
        return None
    last = newest(channel)
    wanted = publication.pk if publication else None
    if last is not None and last.publication_id == wanted and last.confirmed_at is None:
        return last
    purge = Purge.objects.create(
        channel_id=channel, publication=publication, asked_at=now, due_at=now + FIRST_PAUSE
    )
    queue(purge.pk, purge.due_at)
    return purge


def newest(channel: str) -> Purge | None:
    """The newest purge of a channel."""
    return Purge.objects.filter(channel=channel).select_related("channel").order_by("-pk").first()


def settle(purge: Purge | None, *, now: datetime) -> bool | None:
    """Tries a purge; returns whether the CDN serves the release, or None without a configured purge.

    Logs database errors instead of raising them, because the release is published.
    """
    if purge is None:
        return None
    try:
        return confirm(purge_id=purge.pk, now=now)
    except DatabaseError:
        log.warning("purge_not_noted", exc_info=True)
        return False


def confirm(*, purge_id: int, now: datetime) -> bool:
    """Tries a purge; returns whether the public address serves the release. A failure queues the next try.

    Holds no connection while it waits. It is idempotent, and ignores a purge that is no longer the newest.
    """
    purge = _current(purge_id)
    if purge is None or purge.confirmed_at is not None or not cdn.is_purged():
        return purge is not None and purge.confirmed_at is not None
    expected = _expected(purge)
    release_connection()
    clock = clock_from(now)
    failure = _failure_of(purge, expected)
    now = clock()
    if failure:
        _try_again(purge, failure, now=now)
        return False
    tried = {"attempts": F("attempts") + 1, "tried_at": now, "failure": ""}
    Purge.objects.filter(pk=purge.pk, confirmed_at=None).update(confirmed_at=now, **tried)
    return True


def retry(*, channel: str, reason: str, by: Actor, now: datetime) -> bool:
    """Purges a channel at once for an operator, even after a confirmed purge; returns False without a purge."""
    with transaction.atomic():
        # A publish locks this row before it asks for its purge, which the operator's purge must not overtake.
        row = ShellChannel.objects.select_for_update().filter(pk=channel).first()
        if row is None or not is_possible(row):
            return False
        halted = row.halted_at is not None
        live = None if halted else Publication.objects.of(channel).stored().first()
        purge = ask(channel=channel, publication=live, now=now)
        assert purge is not None
        Purge.objects.filter(pk=purge.pk).update(due_at=now)
        after = {"failure": purge.failure, "attempts": purge.attempts}
        record(
            "release:purge_retried",
            channel,
            target_id=channel,
            by=by,
            now=now,
            reason=reason,
            after=after,
        )
        queue(purge.pk, now)
    return True


def is_possible(channel: ShellChannel) -> bool:
    """Returns whether a purge is configured, and the channel has a stored release or is halted."""
    has_any = Publication.objects.of(channel.pk).stored().exists
    return cdn.is_purged() and (channel.halted_at is not None or has_any())


def queue_overdue(*, now: datetime) -> int:
    """Queues overdue purges, whose jobs were lost, again; returns their number."""
    if not cdn.is_purged():
        return 0
    newest_ones = Purge.objects.newest()
    lost = [each for each in newest_ones if not each.confirmed_at and each.due_at < now - OVERDUE]
    for each in lost:
        with transaction.atomic():
            Purge.objects.filter(pk=each.pk).update(due_at=now)
            queue(each.pk, now)
    return len(lost)


def queue(purge_id: int, at: datetime) -> None:
    """Queues a try."""
    app.configure_task("releases.purge", queue="releases", schedule_at=at).defer(purge_id=purge_id)


def _current(purge_id: int) -> Purge | None:
    """The purge, if it is the newest of its channel."""
    purges = Purge.objects.select_related("channel", "publication__release")
    purge = purges.filter(pk=purge_id).first()
    if purge is None or Purge.objects.filter(channel=purge.channel_id, pk__gt=purge_id).exists():
        return None
    return purge


def _expected(purge: Purge) -> Mapping[str, bytes | None]:
    """The content that each public path has to serve."""
    path, shown = pointer_path(purge.channel_id), purge.publication
    return {
        path: bytes(shown.release.manifest) if shown else None,
        f"{path}{SIGNATURE_SUFFIX}": bytes(shown.signature) if shown else None,
    }


def _failure_of(purge: Purge, expected: Mapping[str, bytes | None]) -> str:
    """Purges and reads back until the time limit; returns "" on success, else the code of the failure."""
    deadline = time.monotonic() + READ_BACK_SECONDS
    reference = f"{purge.reference}-{purge.rounds}"
    while True:
        try:
            done = cdn.purge(list(expected), reference=reference)
        except cdn.PurgeFailed as failed:
            failure = failed.code
        else:
            if done and _is_served(expected, deadline):
                return ""
            failure = "old_bytes" if done else Purge.UNDER_WAY
        if time.monotonic() + PAUSE_SECONDS > deadline:
            return failure
        time.sleep(PAUSE_SECONDS)


def _is_served(expected: Mapping[str, bytes | None], deadline: float) -> bool:
    if not cdn.serves(expected, deadline=deadline):
        return False
    time.sleep(SETTLED_SECONDS)
    return cdn.serves(expected, deadline=deadline)


def _try_again(purge: Purge, failure: str, *, now: datetime) -> None:
    attempts = purge.attempts + 1
    due = now + min(FIRST_PAUSE * 2 ** min(purge.attempts, 10), LONGEST_PAUSE)
    again = 1 if failure == "old_bytes" else 0
    waiting = Purge.objects.filter(pk=purge.pk, confirmed_at=None)
    with transaction.atomic():
        noted = waiting.update(
            attempts=F("attempts") + 1,
            rounds=F("rounds") + again,
            tried_at=now,
            failure=failure,
            due_at=due,
        )
        if not noted or _current(purge.pk) is None:
            return
        queue(purge.pk, due)
        tells = attempts >= TOLD_AFTER and not purge.takes_its_time(failure, at=now)
        if tells and waiting.filter(told_at=None).update(told_at=now):
            _tell(purge, failure, now=now)
    log.warning("purge_failed", extra={"channel": purge.channel_id, "reason": failure})


def _tell(purge: Purge, failure: str, *, now: datetime) -> None:
    channel, after = purge.channel_id, {"failure": failure}
    record("release:purge_failed", channel, by=BY, now=now, target_id=channel, after=after)
    subject = f"The CDN does not serve the newest release of {channel}"
    state = f"Storage has the current release of the channel {channel}. The CDN still serves another one"
    if purge.channel.halted_at:
        subject = f"The CDN may still serve an update of {channel}, which is halted"
        state = f"Storage has no release of the halted channel {channel}. The CDN still serves one"
    queue_for_operators(
        subject=subject,
        text=(
            f"{state}, or its purge failed ({failure}). A worker repeats the purge until it succeeds; this email "
            "is sent once."
        ),
        path=reverse("admin:releases_shellchannel_change", args=[purge.channel_id]),
    )
