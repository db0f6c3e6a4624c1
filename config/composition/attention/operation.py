"""Kinds of findings that no app owns: the worker, its clock and queue, failed jobs and nights."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.db.models import Count, Max, Q, QuerySet
from procrastinate.contrib.django.models import (
    ProcrastinateJob,
    ProcrastinatePeriodicDefer,
    ProcrastinateWorker,
)

from config.composition.operation import nightly
from config.platform.attention import Alert, Finding, Kind, Level, kinds

# A worker sends a heartbeat every ten seconds and starts due jobs within one.
BEAT_OVERDUE = timedelta(minutes=1)
STILL_AFTER = timedelta(minutes=5)
QUEUE_OVERDUE = timedelta(minutes=10)
# The tolerated lead of a worker's clock over the database's.
AHEAD = timedelta(minutes=2)
WORKER = "worker"


def worker(now: datetime) -> Iterator[Finding]:
    beat = ProcrastinateWorker.objects.aggregate(last=Max("last_heartbeat"))["last"]
    tick = last_tick()
    # Heartbeats have the database's time, ticks the worker's: a tick in the future proves nothing.
    past = (each for each in (beat, tick) if each and each < now + AHEAD)
    life = max(past, default=None)
    stands_still = life is None or life < now - STILL_AFTER
    if stands_still or beat is None or beat < now - BEAT_OVERDUE:
        yield Finding(since=life, is_alert=stands_still)


def clock(now: datetime) -> Iterator[Finding]:
    tick = last_tick()
    if tick and tick >= now + AHEAD:
        yield Finding(tick=tick, now=now)


def last_tick() -> datetime | None:
    """The time up to which a worker has queued the periodic jobs.

    A worker that stops cleanly deletes its heartbeats but not this; another may be about to replace it.
    """
    tick = ProcrastinatePeriodicDefer.objects.aggregate(last=Max("defer_timestamp"))["last"]
    return datetime.fromtimestamp(tick, UTC) if tick else None


def overdue_jobs(now: datetime) -> QuerySet[ProcrastinateJob]:
    since = now - QUEUE_OVERDUE
    # A job that is due at once has no scheduled time.
    due = Q(scheduled_at__lt=since) | Q(scheduled_at=None, procrastinateevent__at__lt=since)
    return ProcrastinateJob.objects.filter(due, status="todo")


def counted_jobs(rows: QuerySet[ProcrastinateJob], now: datetime) -> Iterator[Finding]:
    """Returns jobs counted by task; those of one task can be requeued together."""
    numbers = (Count("pk", distinct=True), Max("pk"), Max("procrastinateevent__at"))
    tasks = rows.order_by("task_name").values_list("task_name").annotate(*numbers)
    names, each, last, ends = zip(*tasks, strict=True)
    since = max(filter(None, ends), default=None)
    job = ProcrastinateJob(pk=last[0], task_name=names[0], status="failed")
    acts = "retry_alike" if len(names) == 1 else ""
    yield Finding(number=sum(each), names=names, since=since, job=job, acts=acts)


def nights(now: datetime) -> Iterator[Finding]:
    """Returns jobs that have missed a night, which are alerts, and those that have only failed."""
    runs = nightly.last_runs()
    missed = nightly.missed(now=now, runs=runs)
    for run in missed:
        yield Finding(pk=run.job, since=run.done_at, level=Level.ACT)
    for run in runs:
        if run.last and run.has_failed and run not in missed:
            yield Finding(pk=run.job, since=run.last.at, failed=run.last, is_alert=False)


JOBS, JOB = "Jobs & nights", "procrastinate.view_procrastinatejob"
kinds.add(
    Kind(
        WORKER, 10, JOBS, JOB, worker, Level.ACT,
        alert=Alert("Start `manage.py work`; nothing is lost.", "5 minutes without one"),
    ),
    Kind(
        "clock", 20, JOBS, JOB, clock, Level.ACT,
        alert=Alert("Correct that host's clock.", "2 minutes ahead of the database"),
    ),
    Kind(
        "queue", 30, JOBS, JOB, overdue_jobs, Level.ACT, then=counted_jobs,
        alert=Alert("Start another worker, or raise `--concurrency`.", "10 minutes past due"),
    ),
    Kind(
        "failed_jobs", 40, JOBS, JOB, ProcrastinateJob.objects.filter(status="failed"), Level.ACT,
        on="job", then=counted_jobs,
        alert=Alert("Fix the cause shown on the job, then retry.", "a day of retries, or at once"),
    ),
    Kind(
        "night", 50, JOBS, "accounts.view_auditevent", nights,
        alert=Alert("Read the job's error, then run the command of that name.", "26 hours without success"),
    ),
)  # fmt: skip
