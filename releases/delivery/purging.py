"""Whether the CDN serves what storage has: it is told, read back, and told again until it does.

What has to be purged is a row and a queued job, both written with the reason for them; so whoever dies, a worker
goes on. The request that publishes does not wait for that worker: it tries once itself. Of a channel only the
newest purge counts, because the CDN is to serve only what the channel offers now.
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
from config.clock import clock_from
from config.db.connections import release_connection
from config.jobs.mail import queue_for_operators
from releases.delivery import cdn
from releases.delivery.storage import SIGNATURE_SUFFIX, pointer_path
from releases.models import Publication, Purge, ShellChannel

READ_BACK_SECONDS = 10.0
PAUSE_SECONDS = 0.5
# A reader who had begun to fill a cache just before the purge is done by then.
SETTLED_SECONDS = 0.2
# After the request that publishes has had its own try.
FIRST_PAUSE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(minutes=10)
# One failure is told by the answer to the publish; from the second on operators are.
TOLD_AFTER = 2
OVERDUE = timedelta(minutes=5)
BY = Actor(name="the worker")

log = logging.getLogger(__name__)


def ask(*, channel: str, publication: Publication | None, now: datetime) -> Purge | None:
    """The purge after which the CDN serves this (None: nothing), made and queued where none is under way.

    One that was confirmed tells of then: storage has been written since, and caches may have something else by now.
    None where no CDN has to be told. Call it in the transaction that changes what storage has.
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
    """The purge of a channel that counts."""
    return Purge.objects.filter(channel=channel).order_by("-pk").first()


def settle(purge: Purge | None, *, now: datetime) -> bool | None:
    """Whether the CDN serves what it should, tried now where that is not known; None where there is none to tell.

    It never raises: what storage has is published, whatever comes after.
    """
    if purge is None:
        return None
    if purge.confirmed_at is not None:
        return True
    try:
        return confirm(purge_id=purge.pk, now=now)
    except DatabaseError:
        log.warning("purge_not_noted", exc_info=True)
        return False


def confirm(*, purge_id: int, now: datetime) -> bool:
    """Tries a purge; True once the public address serves what it should. A failure queues the next try.

    Holds no connection while it waits. Done twice it does no harm; one that has been overtaken does nothing.
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
    """An operator wants what the channel offers purged at once, also where that was confirmed once.

    False where there is nothing to purge.
    """
    with transaction.atomic():
        purge = _asked_by_operator(channel, now=now)
        if purge is None:
            return False
        Purge.objects.filter(pk=purge.pk).update(due_at=now)
        after = {"failure": purge.failure, "attempts": purge.attempts}
        record(
            "release:purge_retried",
            by=by,
            now=now,
            target=channel,
            target_id=channel,
            reason=reason,
            after=after,
        )
        queue(purge.pk, now)
    return True


def is_possible(channel: ShellChannel) -> bool:
    """Whether there is a CDN, and something of the channel that it should serve or should not."""
    has_any = Publication.objects.of(channel.pk).stored().exists
    return cdn.is_purged() and (channel.halted_at is not None or has_any())


def queue_overdue(*, now: datetime) -> int:
    """Queues again what should have been tried some time ago; gives how many."""
    lost = [each for each in Purge.objects.newest() if _is_overdue(each, now)]
    for each in lost:
        with transaction.atomic():
            Purge.objects.filter(pk=each.pk).update(due_at=now)
            queue(each.pk, now)
    return len(lost)


def queue(purge_id: int, at: datetime) -> None:
    """A job that tries it then."""
    app.configure_task("releases.purge", queue="releases", schedule_at=at).defer(purge_id=purge_id)


def _asked_by_operator(channel: str, *, now: datetime) -> Purge | None:
    # Whoever finishes a publish writes this row first, so that its purge is not overtaken by one of what was before.
    row = ShellChannel.objects.select_for_update().filter(pk=channel).first()
    if row is None or not is_possible(row):
        return None
    halted = row.halted_at is not None
    live = None if halted else Publication.objects.of(channel).stored().first()
    return ask(channel=channel, publication=live, now=now)


def _is_overdue(purge: Purge, now: datetime) -> bool:
    return cdn.is_purged() and purge.confirmed_at is None and purge.due_at < now - OVERDUE


def _current(purge_id: int) -> Purge | None:
    """A purge that still counts."""
    purges = Purge.objects.select_related("publication__release")
    purge = purges.filter(pk=purge_id).first()
    if purge is None or Purge.objects.filter(channel=purge.channel_id, pk__gt=purge_id).exists():
        return None
    return purge


def _expected(purge: Purge) -> Mapping[str, bytes | None]:
    """What each public path has to give."""
    path, shown = pointer_path(purge.channel_id), purge.publication
    return {
        path: bytes(shown.release.manifest) if shown else None,
        f"{path}{SIGNATURE_SUFFIX}": bytes(shown.signature) if shown else None,
    }


def _failure_of(purge: Purge, expected: Mapping[str, bytes | None]) -> str:
    """Purges and reads back for as long as that may take; "" once it is served, else a word for what is wrong."""
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
    record(
        "release:purge_failed",
        by=BY,
        now=now,
        target=purge.channel_id,
        target_id=purge.channel_id,
        after={"failure": failure},
    )
    queue_for_operators(
        subject=f"The CDN does not serve the newest of {purge.channel_id}",
        text=(
            f"Storage has what the channel {purge.channel_id} offers, and the CDN still serves something else, "
            f"or could not be told ({failure}). It is tried again until it does; this mail comes once."
        ),
        path=reverse("admin:releases_shellchannel_change", args=[purge.channel_id]),
    )
