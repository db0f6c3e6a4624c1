"""The nightly jobs in their order, the night that a worker runs, and the jobs that a night has missed."""

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from socket import gethostname
from typing import NamedTuple

from django.db import Error
from django.db.models import Min

from accounts.audit import Actor, record
from accounts.jobs import Job, Outcome, clock, run
from accounts.models import AuditEvent
from accounts.worker import night as access
from config.platform.db.advisory_locks import alone
from config.platform.db.connections import release_connection
from licensing import night as licences
from llmproxy import night as calls
from telemetry import night as telemetry
from usage import night as usage

log = logging.getLogger(__name__)

JOBS: tuple[Job, ...] = (
    licences.SYNC_SUBSCRIPTIONS,
    licences.EXPIRE_GRACE,
    usage.CHECK_USAGE_ALERTS,
    calls.LEARN_TOKEN_FACTORS,
    access.PRUNE_REFRESH_TOKENS,
    calls.PRUNE_PERSONAL_KEYS,
    access.PRUNE_AUDIT_LOG,
    usage.PRUNE_REFUSALS,
    telemetry.COUNT_TELEMETRY,
    telemetry.PRUNE_TELEMETRY,
)
# A day, plus two hours for a night that is long or begins late.
OVERDUE = timedelta(hours=26)
BEGUN = "nightly:begun"
ENDED = ("nightly:done", "nightly:failed")


class Run(NamedTuple):
    """The last run of a job that ended, and the end of the last one that succeeded."""

    job: str
    last: AuditEvent | None
    done_at: datetime | None
    title: str = ""

    @property
    def has_failed(self) -> bool:
        return self.last is not None and self.last.action == "nightly:failed"

    def overdue(self, *, at: datetime) -> bool:
        """Returns whether a night has passed without a successful run."""
        return self.done_at is None or self.done_at < at - OVERDUE


def run_all(
    *, by: Actor, dry_run: bool = False, jobs: Sequence[Job] | None = None
) -> Iterator[tuple[Job, Outcome]]:
    """Runs each job and yields its outcome. A night may be long, so each job reads the clock again."""
    if not dry_run:
        _begin(by=by)
    for job in JOBS if jobs is None else jobs:
        yield job, run(job, by=by, now=clock(), dry_run=dry_run)


def run_due(*, at: time, by: Actor, now: datetime) -> list[tuple[Job, Outcome]]:
    """Runs the jobs that have not ended since this time of day (UTC) was last reached, in one process at a time.

    The next call therefore continues an interrupted night, and makes up for one that no worker ran.
    """
    if not _due(at=at, now=now):
        return []
    with alone("night") as first:
        # Another worker may have ended the night before this one got the lock.
        due = _due(at=at, now=now) if first else []
        return list(run_all(by=by, jobs=due)) if due else []


def _due(*, at: time, now: datetime) -> list[Job]:
    since = datetime.combine(now.astimezone(UTC), at, UTC)
    if since > now:
        since -= timedelta(days=1)
    names = [job.name for job in JOBS]
    ended = AuditEvent.objects.filter(action__in=ENDED, target__in=names, at__gte=since)
    over = set(ended.values_list("target", flat=True))
    return [job for job in JOBS if job.name not in over]


def next_at(*, at: time, now: datetime) -> datetime:
    """Returns when the next night begins, at this time of day (UTC)."""
    tonight = datetime.combine(now.astimezone(UTC), at, UTC)
    return tonight if tonight > now else tonight + timedelta(days=1)


def _begin(*, by: Actor) -> None:
    """Records the jobs of a night, so that a job that never ran is noticed."""
    try:
        after = {"jobs": [job.name for job in JOBS], "host": gethostname()}
        record(BEGUN, "nightly", by=by, now=clock(), target_id="nightly", after=after)
    except Error:
        # Each job finds out by itself whether the database is back.
        log.exception("night_not_noted")
        release_connection()


def last_runs() -> list[Run]:
    """Returns the last runs of each job by the audit log."""
    newest = (
        AuditEvent.objects.filter(action__in=ENDED, target__in=[job.name for job in JOBS])
        .order_by("target", "action", "-at", "-id")
        .distinct("target", "action")
    )
    last: dict[str, AuditEvent] = {}
    done: dict[str, datetime] = {}
    for event in newest:
        if event.action == "nightly:done":
            done[event.target] = event.at
        if event.target not in last or last[event.target].at < event.at:
            last[event.target] = event
    return [
        Run(job.name, last.get(job.name), done.get(job.name), job.title or job.name) for job in JOBS
    ]


def missed(*, now: datetime, runs: list[Run] | None = None) -> list[Run]:
    """Returns jobs without a successful run for more than a night, except on the first day and for new jobs."""
    runs = last_runs() if runs is None else runs
    if all(run.last is None for run in runs):
        begun = AuditEvent.objects.aggregate(first=Min("at"))["first"]
        return runs if begun is not None and begun < now - OVERDUE else []
    overdue = [run for run in runs if run.overdue(at=now)]
    due = _first_due() if any(run.last is None for run in overdue) else {}
    return [run for run in overdue if run.last is not None or due.get(run.job, now) < now - OVERDUE]


def _first_due() -> dict[str, datetime]:
    """Returns when each job was first due, as far as the audit log goes back."""
    first: dict[str, datetime] = {}
    for event in AuditEvent.objects.filter(action=BEGUN).order_by("at").only("at", "after"):
        for name in (event.after or {}).get("jobs", ()):
            first.setdefault(name, event.at)
    return first
