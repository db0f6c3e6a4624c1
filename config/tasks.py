"""What the worker does for the queue itself. The tasks of the plumbing are found through this module."""

from procrastinate import JobContext

from config import mail
from config.queue import URGENT, periodic, rescue_jobs, task

__all__ = ["mail"]

FORGET_AFTER_HOURS = 7 * 24


@periodic(cron="* * * * *")
@task(
    name="queue.rescue",
    queue="queue",
    queueing_lock="queue.rescue",
    priority=URGENT,
    pass_context=True,
)
async def rescue(context: JobContext, timestamp: int) -> None:
    """Every minute: what a worker was doing when it died is queued again."""
    await rescue_jobs(context.app.job_manager)


@periodic(cron="17 3 * * *")
@task(name="queue.forget", queue="queue", queueing_lock="queue.forget", pass_context=True)
async def forget(context: JobContext, timestamp: int) -> None:
    """Every night: jobs that were done a week ago are deleted; failed ones stay until an operator has seen them."""
    await context.app.job_manager.delete_old_jobs(nb_hours=FORGET_AFTER_HOURS)
