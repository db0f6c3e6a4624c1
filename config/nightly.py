"""The jobs of a night, in their order, and whether operators can rely on them."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from django.utils import timezone

from accounts import night as access
from accounts.audit import Actor
from accounts.jobs import Job, Outcome, run
from accounts.models import AuditEvent
from licensing import night as licences
from telemetry import night as telemetry
from usage import night as usage

JOBS: tuple[Job, ...] = (
    licences.SYNC_SUBSCRIPTIONS,
    licences.EXPIRE_GRACE,
    usage.CHECK_USAGE_ALERTS,
    access.PRUNE_REFRESH_TOKENS,
    access.PRUNE_AUDIT_LOG,
    telemetry.PRUNE_TELEMETRY,
)
# A night, and two hours for it to be long or to begin late.
OVERDUE = timedelta(hours=26)


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
    for job in JOBS:
        yield job, run(job, by=by, now=timezone.now(), dry_run=dry_run)


def last_runs() -> list[Run]:
    """What the audit log knows of each job."""
    events = AuditEvent.objects.filter(
        action__in=("nightly:done", "nightly:failed"), target__in=[job.name for job in JOBS]
    )
    newest = events.order_by("target", "-at", "-id").distinct("target")
    last = {event.target: event for event in newest}
    done = {event.target: event.at for event in newest.filter(action="nightly:done")}
    return [Run(job.name, last.get(job.name), done.get(job.name)) for job in JOBS]
