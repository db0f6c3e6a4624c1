"""Metrics that no app owns: the queue and the nights."""

from datetime import datetime

from django.db.models import Min, Q, QuerySet
from procrastinate.contrib.django.models import ProcrastinateJob

from config.composition.operation import nightly
from config.platform.observability.metrics import DatabaseGauge, database_gauges

# Jobs due at once have no scheduled time.
AT_ONCE = Q(scheduled_at=None)


def due(now: datetime) -> QuerySet[ProcrastinateJob]:
    return ProcrastinateJob.objects.filter(AT_ONCE | Q(scheduled_at__lte=now), status="todo")


def oldest_due_seconds(now: datetime) -> float:
    """Returns the age of the oldest due job; one without a scheduled time counts from its first event."""
    first = due(now).aggregate(
        planned=Min("scheduled_at"), queued=Min("procrastinateevent__at", filter=AT_ONCE)
    )
    since = min(filter(None, first.values()), default=now)
    return max(0.0, (now - since).total_seconds())


def last_nights(now: datetime) -> dict[str, float]:
    runs = nightly.last_runs()
    return {run.job: run.done_at.timestamp() for run in runs if run.done_at is not None}


database_gauges.add(
    DatabaseGauge("shell_jobs_due", "Jobs that wait.", lambda now: due(now).count()),
    DatabaseGauge("shell_jobs_oldest_due_seconds", "Age.", oldest_due_seconds),
    DatabaseGauge(
        "shell_jobs_failed",
        "Jobs that failed permanently.",
        lambda _now: ProcrastinateJob.objects.filter(status="failed").count(),
    ),
    DatabaseGauge("shell_night_done_timestamp_seconds", "Last.", last_nights, labels=("task",)),
)
