"""Watching what works while nobody looks: the worker, its queue, and the jobs of the night.

Web processes do it, because a worker that stands still cannot say so. Whatever is wrong is raised once, as an audit
event, and told by mail: again each day while it lasts, and cleared by another event when it is over. The mail of a
worker that stands still is handed over from here, since there is nobody else to do it.
"""

import logging
import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Max
from procrastinate.contrib.django.models import ProcrastinatePeriodicDefer, ProcrastinateWorker

from accounts.audit import Actor, record
from accounts.models import AuditEvent
from config.advisory import alone
from config.api.problems import instant
from config.console import queued
from config.database import database_now, release_connection
from config.jobs.mail import Refused, deliver, queue_for_operators
from config.management import nightly

log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
# A worker beats every ten seconds and takes up what is due within one.
STILL_AFTER = timedelta(minutes=5)
LAGS_AFTER = timedelta(minutes=10)
# What is due is taken up when it is, and never before: so far a worker's clock may be ahead.
AHEAD = timedelta(minutes=2)
AGAIN_AFTER = timedelta(hours=24)
RAISED, CLEARED = "alarm:raised", "alarm:cleared"
WORKER = "worker"
WATCH = Actor(name="the watch")


class Concern(NamedTuple):
    """Something that operators have to hear of; ``name`` tells it from others."""

    name: str
    subject: str
    text: str
    path: str


def concerns(*, now: datetime) -> Iterator[Concern]:
    """What is wrong now."""
    jobs = "/admin/procrastinate/procrastinatejob/"
    beat, tick = _last_beat(), _last_tick()
    # Beats are written in the database's time, ticks in the worker's: one of a clock that is ahead proves nothing.
    past = (each for each in (beat, tick) if each and each < now + AHEAD)
    life = max(past, default=None)
    if life is None or life < now - STILL_AFTER:
        yield Concern(
            WORKER,
            "No worker is running",
            f"The last sign of life: {instant(life) if life else 'none'}. Until one runs (manage.py work) no mail "
            "is sent, abandoned model calls hold their tokens, and nothing queued is done. Nothing is lost.",
            jobs,
        )
    if tick and tick >= now + AHEAD:
        yield Concern(
            "clock",
            "The clock of a worker is ahead",
            f"It has done what is due at {instant(tick)}, and by the database it is {instant(now)}. Set the clock of "
            "its host. Until then, nothing that the clock asks for is done again once it is right: abandoned calls "
            "hold their tokens, and what a killed worker was doing waits.",
            jobs,
        )
    if waiting := queued.waiting(since=now - LAGS_AFTER):
        yield Concern(
            "queue",
            "Queued work waits",
            f"Jobs that should have begun more than ten minutes ago: {waiting}. Either no worker runs, or those "
            "that do are busy: start another (manage.py work), or one with a higher --concurrency.",
            f"{jobs}?status=todo",
        )
    if failed := queued.failed():
        yield Concern(
            "failed jobs",
            "Queued work has failed for good",
            f"Jobs that have failed at every try: {failed}. The console can queue them again once the cause is "
            "mended.",
            f"{jobs}?status=failed",
        )
    for run in nightly.missed(now=now):
        ended = (
            "has never ended well" if run.done_at is None else f"ended well {instant(run.done_at)}"
        )
        yield Concern(
            f"night: {run.job}",
            f"A night was missed: {run.job}",
            f"The job {run.job} {ended} for the last time. See that manage.py nightly runs every night; to make "
            f"up for it now, run manage.py {run.job}.",
            "/admin/accounts/auditevent/?subject=nightly",
        )


def _last_beat() -> datetime | None:
    beat: datetime | None = ProcrastinateWorker.objects.aggregate(last=Max("last_heartbeat"))[
        "last"
    ]
    return beat


def _last_tick() -> datetime | None:
    """Up to when a worker has queued what is due by the clock.

    A worker that is told to stop takes its heartbeats with it and leaves this; another may be about to take its place.
    """
    tick = ProcrastinatePeriodicDefer.objects.aggregate(last=Max("defer_timestamp"))["last"]
    return datetime.fromtimestamp(tick, UTC) if tick else None


def watch(*, now: datetime) -> list[str]:
    """Raises and clears what has changed; gives the names of what is wrong. One process does, the others leave it."""
    with alone("operators' watch") as first:
        if not first:
            return []
        present = {concern.name: concern for concern in concerns(now=now)}
        standing = _standing()
        for name in standing.keys() - present.keys():
            record(CLEARED, by=WATCH, now=now, target=name, target_id=name)
        for name, concern in present.items():
            if name not in standing or standing[name] < now - AGAIN_AFTER:
                _raise(concern, by_hand=WORKER in present, now=now)
        release_connection()
        return sorted(present)


def _standing() -> dict[str, datetime]:
    """What was raised last and is not cleared, with when."""
    newest = (
        AuditEvent.objects.filter(action__in=(RAISED, CLEARED))
        .order_by("target", "-at", "-id")
        .distinct("target")
    )
    return {event.target: event.at for event in newest if event.action == RAISED}


def _raise(concern: Concern, *, by_hand: bool, now: datetime) -> None:
    """The mail and the event that it was sent. A mail that cannot be handed over is tried again at the next look.

    One that is refused for good is not: the console shows what nobody can be told.
    """
    if concern.name == WORKER:
        log.error("worker_stands_still")
    if by_hand and settings.OPERATOR_EMAILS:
        text = f"{concern.text}\n\n{settings.BASE_URL}{concern.path}\n"
        with suppress(Refused):
            deliver(to=settings.OPERATOR_EMAILS, subject=concern.subject, text=text)
    with transaction.atomic():
        record(
            RAISED,
            by=WATCH,
            now=now,
            target=concern.name,
            target_id=concern.name,
            after={"says": concern.subject},
        )
        if not by_hand:
            queue_for_operators(subject=concern.subject, text=concern.text, path=concern.path)


def start() -> threading.Thread:
    """Looks every minute for as long as this process lives; the first time after ``STILL_AFTER``.

    So long a worker may take to come up beside it.
    """
    thread = threading.Thread(target=_look_for_ever, name="watch", daemon=True)
    thread.start()
    return thread


def _look_for_ever() -> None:
    pause = threading.Event()
    pause.wait(STILL_AFTER.total_seconds())
    while True:
        try:
            # By the clock of what is looked at: a host whose own is wrong must raise no alarm.
            watch(now=database_now())
        except Exception:
            # Of any kind: the next look may be better, and without a database there is nothing to look at.
            log.warning("watch_failed", exc_info=True)
        release_connection()
        # Processes that started together shall not ask together for ever.
        pause.wait(EVERY_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311 - no secret
