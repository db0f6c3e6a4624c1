"""The jobs of a night, in their order, and whether operators can rely on them."""

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from socket import gethostname
from typing import NamedTuple

from django.db import Error
from django.db.models import Min

from accounts import night as access
from accounts.audit import Actor, record
from accounts.jobs import Job, Outcome, clock, run
from accounts.models import AuditEvent
from config.db.connections import release_connection
from licensing import night as licences
from telemetry import night as telemetry
from usage import night as usage

log = logging.getLogger(__name__)

JOBS: tuple[Job, ...] = (
    licences.SYNC_SUBSCRIPTIONS,
    licences.EXPIRE_GRACE,
    usage.CHECK_USAGE_ALERTS,
    access.PRUNE_REFRESH_TOKENS,
    access.PRUNE_AUDIT_LOG,
    telemetry.COUNT_TELEMETRY,
    telemetry.PRUNE_TELEMETRY,
)
# A night, and two hours for it to be long or to begin late.
OVERDUE = timedelta(hours=26)
BEGUN = "nightly:begun"


class Run(NamedTuple):
    """The last time that a job was run to an end, if it ever was, and the last time that went well."""

    job: str
    last: AuditEvent | None
    done_at: datetime | None

    def overdue(self, *, at: datetime) -> bool:
        """Whether a night has gone by without it."""
        return self.done_at is None or self.done_at < at - OVERDUE


def run_all(*, by: Actor, dry_run: bool = False) -> Iterator[tuple[Job, Outcome]]:
    """Each job and how it ended, as soon as it has. The night may be long, so each reads the clock anew."""
    if not dry_run:
        _begin(by=by)
    for job in JOBS:
        yield job, run(job, by=by, now=clock(), dry_run=dry_run)


def _begin(*, by: Actor) -> None:
    """Writes down which jobs are to be done: one that a night never comes to would leave nothing to miss it by."""
    try:
        record(
            BEGUN,
            by=by,
            now=clock(),
            target="nightly",
            target_id="nightly",
            after={"jobs": [job.name for job in JOBS], "host": gethostname()},
        )
    except Error:
        # The jobs find out for themselves whether the database is back.
        log.exception("night_not_noted")
        release_connection()


def last_runs() -> list[Run]:
    """What the audit log knows of each job."""
    newest = (
        AuditEvent.objects.filter(
            action__in=("nightly:done", "nightly:failed"), target__in=[job.name for job in JOBS]
        )
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
    return [Run(job.name, last.get(job.name), done.get(job.name)) for job in JOBS]


def missed(*, now: datetime) -> list[Run]:
    """Jobs whose last good run is more than a night ago; not on the first day, nor for a job that is new."""
    runs = last_runs()
    if all(run.last is None for run in runs):
        begun = AuditEvent.objects.aggregate(first=Min("at"))["first"]
        return runs if begun is not None and begun < now - OVERDUE else []
    overdue = [run for run in runs if run.overdue(at=now)]
    asked = _first_asked() if any(run.last is None for run in overdue) else {}
    return [
        run for run in overdue if run.last is not None or asked.get(run.job, now) < now - OVERDUE
    ]


def _first_asked() -> dict[str, datetime]:
    """When a night was first to do each job, as far as the audit log goes back."""
    first: dict[str, datetime] = {}
    for event in AuditEvent.objects.filter(action=BEGUN).order_by("at").only("at", "after"):
        for name in (event.after or {}).get("jobs", ()):
            first.setdefault(name, event.at)
    return first
