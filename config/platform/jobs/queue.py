"""The job queue. A job is a row that commits with the rule that queued it, and runs at least once.

A task must therefore be safe to run twice. Web processes only queue; a worker (``manage.py work``) runs the jobs.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from django.db.models import Exists, OuterRef
from procrastinate import BaseRetryStrategy, RetryDecision
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateJob
from procrastinate.exceptions import ConnectorException, UniqueViolation
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager

log = logging.getLogger(__name__)

# The decorated function becomes procrastinate's ``Task``, whose types are less precise.
Decorator = Callable[[Callable[..., Any]], Any]

# A stopping worker gives its jobs this long to finish; then another worker runs them.
GRACE_SECONDS = 30
# A worker without a heartbeat for this long counts as dead. A stopping worker sends none while its jobs finish, and
# another must not take them over.
DEAD_AFTER_SECONDS = GRACE_SECONDS + 15

# The only task that may take hours: it deletes, and queries a payment processor about every client.
NIGHT = "nightly.run"
LONGEST_NIGHT_SECONDS = 6 * 3600

FORGET_AFTER_HOURS = 7 * 24
FORGET_RESETS_AFTER_HOURS = 24

# Runs before all other waiting jobs, so that a hanging mail server does not delay settlements.
URGENT = 10
# Runs when nothing else waits: jobs that anonymous callers can cause never delay an operator's mail.
UNHURRIED = -10
# The queue of jobs that anonymous callers can cause, and its limit; that many are sent within minutes.
RESETS = "resets"
MAY_WAIT = 10_000

_titles: dict[str, str] = {}


class FailedForGood(Exception):
    """Raised by a task whose failure is permanent."""


class Backoff(BaseRetryStrategy):
    """Retries with growing waits for about a day, unless the failure is permanent.

    The waits are 14 s, 26 s, 74 s, 4 min, 17 min, and then an hour each: a job runs soon after its server recovers.
    """

    tries_again = 28
    longest_seconds = 3600

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        if isinstance(exception, FailedForGood) or job.attempts >= self.tries_again:
            return None
        return RetryDecision(retry_in={"seconds": self.wait_seconds(job)})

    def wait_seconds(self, job: Job) -> int:
        return int(min(10 + 4 ** (job.attempts + 1), self.longest_seconds))


BACKOFF = Backoff()


def task(*, title: str = "", **options: Any) -> Decorator:
    """Registers a function as a task; see procrastinate's ``App.task`` for the options.

    ``title`` describes it to operators, as "Send an email".
    """
    _titles[options["name"]] = title
    # Resolved at the call: Django replaces the app object once it is ready.
    return cast("Decorator", app.task(**options))


def periodic(cron: str, *, name: str, **options: Any) -> Decorator:
    """Registers a periodic task. It is queued once however many workers there are; at most one waits."""
    by_clock, queued = app.periodic(cron=cron), task(name=name, queueing_lock=name, **options)
    return lambda function: by_clock(queued(function))


def title_of(name: str) -> str:
    """Returns the title of a task; its name if no process of this release has such a task."""
    app.perform_import_paths()  # type: ignore[no-untyped-call]
    return _titles.get(name) or name


def named(term: str) -> list[str]:
    """Returns the names of the tasks whose titles contain a text, in any case."""
    app.perform_import_paths()  # type: ignore[no-untyped-call]
    return [name for name, title in _titles.items() if term.lower() in title.lower()]


def crowded() -> bool:
    """Returns whether the queue of jobs that anonymous callers can cause is full."""
    waiting = ProcrastinateJob.objects.filter(status="todo", priority=UNHURRIED)
    return waiting[MAY_WAIT - 1 : MAY_WAIT].exists()


async def rescue_jobs(manager: JobManager) -> None:
    """Requeues the jobs of dead workers. A job that cannot be queued does not block the others."""
    for job in await manager.get_stalled_jobs(seconds_since_heartbeat=DEAD_AFTER_SECONDS):
        try:
            await _rescue(manager, job)
        except ConnectorException:
            # The job has ended, or another worker rescued it. The next run reports an unavailable database.
            log.warning("job_not_rescued", extra={"task": job.task_name}, exc_info=True)


async def _rescue(manager: JobManager, job: Job) -> None:
    if job.attempts >= BACKOFF.tries_again:
        # After this many attempts the job itself may be killing its workers.
        await manager.finish_job(job, status=Status.FAILED, delete_job=False)
        return
    # A job that may have killed several workers waits, so that the next worker runs other jobs first.
    wait = timedelta(seconds=BACKOFF.wait_seconds(job) if job.attempts else 0)
    try:
        await manager.retry_job(job, retry_at=datetime.now(UTC) + wait)
    except UniqueViolation:
        # The scheduler has queued the same periodic task again, and only one may wait.
        await manager.finish_job(job, status=Status.FAILED, delete_job=True)


def forgive_superseded() -> None:
    """Deletes failures of periodic tasks that have succeeded since.

    A restart of the database may abort a sweep, which the next minute repeats; operators need not see that.
    """
    later = ProcrastinateJob.objects.filter(
        task_name=OuterRef("task_name"), pk__gt=OuterRef("pk"), status="succeeded"
    )
    failed = ProcrastinateJob.objects.filter(status="failed", queueing_lock__isnull=False)
    failed.filter(Exists(later)).delete()


def forget_resets() -> None:
    """Deletes finished resets at once: anonymous callers can cause any number, and a week of them fills the table."""
    ProcrastinateJob.objects.filter(queue_name=RESETS, status="succeeded").delete()


async def forget_old(manager: JobManager) -> None:
    """Deletes jobs that succeeded or were discarded a week ago; failed ones are kept until an operator acts on them.

    Failed resets are kept for a day: anonymous callers can cause them, and a person can request another.
    """
    await manager.delete_old_jobs(
        nb_hours=FORGET_RESETS_AFTER_HOURS, queue=RESETS, include_failed=True
    )
    await manager.delete_old_jobs(
        nb_hours=FORGET_AFTER_HOURS, include_cancelled=True, include_aborted=True
    )
