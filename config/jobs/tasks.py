"""What the worker does for the queue itself. The tasks of the plumbing are found through this module."""

from procrastinate import JobContext

from config.jobs import mail
from config.jobs.queue import (
    URGENT,
    forget_old,
    forget_resets,
    forgive_superseded,
    periodic,
    rescue_jobs,
    task,
)

__all__ = ["mail"]


@periodic(cron="* * * * *")
@task(
    name="queue.rescue",
    queue="queue",
    queueing_lock="queue.rescue",
    priority=URGENT,
    pass_context=True,
)
async def rescue(context: JobContext, timestamp: int) -> None:
    """Every minute: what a worker was doing when it died is queued again; what nobody needs to look at is forgotten."""
    await rescue_jobs(context.app.job_manager)
    await forgive_superseded(context.app.job_manager)
    await forget_resets(context.app.job_manager)


@periodic(cron="17 3 * * *")
@task(name="queue.forget", queue="queue", queueing_lock="queue.forget", pass_context=True)
async def forget(context: JobContext, timestamp: int) -> None:
    """Every night: jobs of long ago are deleted."""
    await forget_old(context.app.job_manager)
