"""Queued work. A job is a row that commits with what asked for it, and is done at least once.

So what a task does must be safe to do twice. Web processes only queue; a worker process does the work:
``manage.py work``.
"""

from collections.abc import Callable
from typing import Any, cast

from procrastinate import RetryStrategy
from procrastinate.contrib.django import app
from procrastinate.manager import JobManager

# What comes out is procrastinate's ``Task``, whose types say less than this.
Decorator = Callable[[Callable[..., Any]], Any]

# Three missed heartbeats of ten seconds: that worker is dead, or as good as dead.
DEAD_AFTER_SECONDS = 30

# Done before anything else that waits, so that a mail server that hangs delays no money.
URGENT = 10

# Waits of 14 s, 26 s, 74 s … 4.6 h: about six hours in all before a job counts as failed for good.
BACKOFF = RetryStrategy(max_attempts=8, wait=10, exponential_wait=4)


def task(**options: Any) -> Decorator:
    """Registers a function as a task; see procrastinate's ``App.task`` for the options."""
    # Asked for at the call: the app is another object once Django is ready.
    return cast("Decorator", app.task(**options))


def periodic(*, cron: str) -> Decorator:
    """Has the worker queue a task by the clock; one worker does, however many there are."""
    return cast("Decorator", app.periodic(cron=cron))


async def rescue_jobs(manager: JobManager) -> None:
    """Queues again what workers were doing when they died."""
    for job in await manager.get_stalled_jobs(seconds_since_heartbeat=DEAD_AFTER_SECONDS):
        await manager.retry_job(job)
