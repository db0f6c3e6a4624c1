"""Queued work. A job is a row that commits with what asked for it, and is done at least once.

So what a task does must be safe to do twice. Web processes only queue; a worker process does the work:
``manage.py work``.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from django.db import connection
from procrastinate import BaseRetryStrategy, RetryDecision
from procrastinate.contrib.django import app
from procrastinate.exceptions import ConnectorException, UniqueViolation
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager

log = logging.getLogger(__name__)

# What comes out is procrastinate's ``Task``, whose types say less than this.
Decorator = Callable[[Callable[..., Any]], Any]

# Told to stop, a worker gives what it is doing so long to end by itself; after that it is another worker's.
GRACE_SECONDS = 30
# Without a heartbeat for so long a worker counts as dead. One comes every ten seconds until a worker is told to stop
# and none from then on, so a job that is still ending in peace must not be taken from it.
DEAD_AFTER_SECONDS = GRACE_SECONDS + 15

FORGET_AFTER_HOURS = 7 * 24
FORGET_RESETS_AFTER_HOURS = 24

# Done before anything else that waits, so that a mail server that hangs delays no money.
URGENT = 10
# Done once nothing else waits: what strangers can ask for keeps no operator's mail waiting, however many ask.
UNHURRIED = -10
# The queue of what strangers can ask for, and how much of it may wait; it is sent in minutes.
RESETS = "resets"
MAY_WAIT = 10_000


class FailedForGood(Exception):
    """Raised by a task that would end the same however often it were tried."""


class Backoff(BaseRetryStrategy):
    """Tries again after growing waits, for about a day in all, unless it has failed for good.

    The waits: 14 s, 26 s, 74 s, 4 min, 17 min, and then an hour each, so that nothing waits for long once what it
    talks to is back.
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


def task(**options: Any) -> Decorator:
    """Registers a function as a task; see procrastinate's ``App.task`` for the options."""
    # Asked for at the call: the app is another object once Django is ready.
    return cast("Decorator", app.task(**options))


def periodic(*, cron: str) -> Decorator:
    """Has the worker queue a task by the clock; one worker does, however many there are."""
    return cast("Decorator", app.periodic(cron=cron))


# By the index of what waits, which ends at what is not hurried.
_CROWDED = """
SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status = 'todo' AND priority = %s OFFSET %s LIMIT 1)
"""


def crowded() -> bool:
    """Whether so much that strangers have asked for waits that no more of it is to be queued."""
    with connection.cursor() as cursor:
        cursor.execute(_CROWDED, [UNHURRIED, MAY_WAIT - 1])
        (found,) = cursor.fetchone() or (False,)
        return bool(found)


async def rescue_jobs(manager: JobManager) -> None:
    """Queues again what workers were doing when they died. One that cannot be keeps none of the others waiting."""
    for job in await manager.get_stalled_jobs(seconds_since_heartbeat=DEAD_AFTER_SECONDS):
        try:
            await _rescue(manager, job)
        except ConnectorException:
            # It has ended, or another worker was quicker. If it is the database that is away, the next finds out.
            log.warning("job_not_rescued", extra={"task": job.task_name}, exc_info=True)


async def _rescue(manager: JobManager, job: Job) -> None:
    if job.attempts >= BACKOFF.tries_again:
        # So often it may be the job that its workers die of.
        await manager.finish_job(job, status=Status.FAILED, delete_job=False)
        return
    # One worker may die of anything; what several have died of must not keep the next from all else.
    wait = timedelta(seconds=BACKOFF.wait_seconds(job) if job.attempts else 0)
    try:
        await manager.retry_job(job, retry_at=datetime.now(UTC) + wait)
    except UniqueViolation:
        # The clock has queued the same anew, and only one of them may wait.
        await manager.finish_job(job, status=Status.FAILED, delete_job=True)


_SUPERSEDED = """
DELETE FROM procrastinate_jobs AS job WHERE status = 'failed' AND queueing_lock IS NOT NULL AND EXISTS (
    SELECT FROM procrastinate_jobs AS later
    WHERE later.task_name = job.task_name AND later.id > job.id AND later.status = 'succeeded'
)
"""


async def forgive_superseded(manager: JobManager) -> None:
    """Forgets failures of what the clock asks for that the same task has made up for since.

    A restart of the database may end a sweep that the next minute repeats; nobody needs to look at that.
    """
    await manager.connector.execute_query_async(_SUPERSEDED)


_SENT = "DELETE FROM procrastinate_jobs WHERE queue_name = %(queue)s AND status = 'succeeded'"


async def forget_resets(manager: JobManager) -> None:
    """Deletes resets that were done: strangers can ask for any number, and a week of them would fill the table."""
    await manager.connector.execute_query_async(_SENT, queue=RESETS)


async def forget_old(manager: JobManager) -> None:
    """Deletes jobs that were done, or given up, a week ago; failed ones stay until an operator has seen them.

    Of resets the failed ones stay for a day: strangers can ask for them, and whoever still needs one asks anew.
    """
    await manager.delete_old_jobs(
        nb_hours=FORGET_RESETS_AFTER_HOURS, queue=RESETS, include_failed=True
    )
    await manager.delete_old_jobs(
        nb_hours=FORGET_AFTER_HOURS, include_cancelled=True, include_aborted=True
    )
