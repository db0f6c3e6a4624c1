"""Kinds of findings that no app owns: the worker, its clock and queue, failed jobs and nights."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.db.models import Count, DateTimeField, Func, Max, Q, QuerySet, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce
from procrastinate.contrib.django.models import (
    ProcrastinateJob,
    ProcrastinatePeriodicDefer,
    ProcrastinateWorker,
)

from config.composition.operation import nightly
from config.platform.attention import Alert, Door, Finding, Kind, Level, kinds
from config.platform.jobs.queue import title_of

# A worker sends a heartbeat every ten seconds and starts due jobs within one.
BEAT_OVERDUE = timedelta(minutes=1)
STILL_AFTER = timedelta(minutes=5)
QUEUE_OVERDUE = timedelta(minutes=10)
# The tolerated lead of a worker's clock over the database's.
AHEAD = timedelta(minutes=2)
WORKER = "worker"
FAILED = Door(
    "Retry",
    "procrastinate.procrastinatejob_retry",
    "procrastinate_procrastinatejob_changelist",
    "status=failed",
)


def worker(now: datetime) -> Iterator[Finding]:
    signs = _signs_of_life()
    beat, tick = signs["beat"], signs["tick"]
    # Heartbeats have the database's time, ticks the worker's: a tick in the future proves nothing.
    past = (each for each in (beat, tick) if each and each < now + AHEAD)
    life = max(past, default=None)
    is_still = life is None or life < now - STILL_AFTER
    if is_still or beat is None or beat < now - BEAT_OVERDUE:
        yield Finding(since=life, is_alert=is_still)


def clock(now: datetime) -> QuerySet[ProcrastinatePeriodicDefer]:
    ahead = int((now + AHEAD).timestamp())
    return ProcrastinatePeriodicDefer.objects.filter(defer_timestamp__gte=ahead)


def ahead(rows: QuerySet[ProcrastinatePeriodicDefer], now: datetime) -> Iterator[Finding]:
    tick = rows.aggregate(last=Max("defer_timestamp"))["last"]
    if tick is not None:
        yield Finding(tick=datetime.fromtimestamp(tick, UTC), now=now)


def _signs_of_life() -> dict[str, datetime | None]:
    """The last heartbeat of a worker, and the time up to which one has queued the periodic jobs, in one query.

    A worker that stops cleanly deletes its heartbeats but not this; another may be about to replace it.
    """
    tick = Func(Max("defer_timestamp"), function="to_timestamp", output_field=DateTimeField())
    workers = ProcrastinateWorker.objects.order_by().values(sign=Value("beat"))
    defers = ProcrastinatePeriodicDefer.objects.order_by().values(sign=Value("tick"))
    beats = workers.annotate(last=Max("last_heartbeat")).values_list("sign", "last")
    return dict(beats.union(defers.annotate(last=tick).values_list("sign", "last"), all=True))


def overdue_jobs(now: datetime) -> QuerySet[ProcrastinateJob]:
    since = now - QUEUE_OVERDUE
    # A job that is due at once has no scheduled time.
    due = Q(scheduled_at__lt=since) | Q(scheduled_at=None, procrastinateevent__at__lt=since)
    return ProcrastinateJob.objects.filter(due, status="todo")


def counted_jobs(rows: QuerySet[ProcrastinateJob], now: datetime) -> Iterator[Finding]:
    """Returns jobs counted by task, and the number of people affected."""
    to = Coalesce(*(KeyTextTransform(name, "args") for name in ("user_id", "email", "to")))
    numbers = (Count("pk", distinct=True), Max("pk"), Max("procrastinateevent__at"))
    tasks = rows.order_by("task_name").values_list("task_name")
    counted = list(tasks.annotate(*numbers, people=Count(to, distinct=True)))
    if not counted:
        # A worker has begun the last of them since they were found.
        return
    names, each, last, ends, people = zip(*counted, strict=True)
    since = max(filter(None, ends), default=None)
    job = ProcrastinateJob(pk=last[0], task_name=names[0], status="failed")
    titles = [title_of(name) for name in names]
    does = [f"{title[:1].lower()}{title[1:]}" for title in titles]
    affected = sum(people) or ""
    yield Finding(number=sum(each), names=does, since=since, job=job, affected=affected)


def failed_jobs(rows: QuerySet[ProcrastinateJob], now: datetime) -> Iterator[Finding]:
    """Returns failed jobs counted by task; those of one task can be requeued together."""
    for found in counted_jobs(rows, now):
        found.acts = "retry_alike" if len(found.names) == 1 else ""
        yield found


def nights(now: datetime, runs: list[nightly.Run] | None = None) -> Iterator[Finding]:
    """Returns jobs that have missed a night, which are alerts, and those that have only failed."""
    runs = nightly.last_runs() if runs is None else runs
    missed = nightly.missed(now=now, runs=runs)
    for run in missed:
        yield Finding(pk=run.job, title=run.title, since=run.done_at, level=Level.ACT)
    for run in runs:
        if run.last and run.has_failed and run not in missed:
            at, failed = run.last.at, run.last
            yield Finding(pk=run.job, title=run.title, since=at, failed=failed, is_alert=False)


def missed_together(findings: list[Finding]) -> Iterator[Finding]:
    """The jobs that have missed a night as one finding, and each that has only failed, with its cause."""
    missed = [each for each in findings if not hasattr(each, "failed")]
    if missed:
        since = min((each.since for each in missed if each.since), default=None)
        yield Finding(missed=[each.title for each in missed], since=since, level=Level.ACT)
    yield from (each for each in findings if hasattr(each, "failed"))


JOBS, JOB = "Background jobs", "procrastinate.view_procrastinatejob"
kinds.add(
    Kind(
        WORKER, 10, JOBS, JOB, worker, Level.ACT, affected="everybody",
        alert=Alert("Start `manage.py work`; nothing is lost.", "5 minutes without one"),
    ),
    Kind(
        "clock", 20, JOBS, JOB, clock, Level.ACT, then=ahead,
        alert=Alert("Correct that host's clock.", "2 minutes ahead of the database"),
    ),
    Kind(
        "queue", 30, JOBS, JOB, overdue_jobs, Level.ACT, then=counted_jobs,
        alert=Alert("Start another worker, or raise `--concurrency`.", "10 minutes past due"),
    ),
    Kind(
        "failed_jobs", 40, JOBS, JOB, ProcrastinateJob.objects.filter(status="failed"), Level.ACT,
        on="job", label="Retry", then=failed_jobs, door=FAILED,
        alert=Alert("Fix the cause shown on the job, then retry.", "a day of retries, or at once"),
    ),
    Kind(
        "night", 50, JOBS, "accounts.view_auditevent", nights, merged=missed_together,
        alert=Alert("Read the job's error, then run the command of that name.", "26 hours without success"),
    ),
)  # fmt: skip
