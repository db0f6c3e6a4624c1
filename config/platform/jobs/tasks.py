"""Tasks of the job queue itself. The worker finds the tasks of ``config`` through this module."""

from procrastinate import JobContext
from procrastinate.manager import JobManager

from config.platform.jobs import mail, queue

__all__ = ["mail"]


@queue.periodic(
    "* * * * *",
    name="queue.rescue",
    title="Requeue the jobs of dead workers",
    queue="queue",
    priority=queue.URGENT,
    pass_context=True,
)
async def rescue(context: JobContext, timestamp: int) -> None:
    """Requeues the jobs of dead workers, every minute."""
    # The worker's own manager would retry a failure for seconds.
    await queue.rescue_jobs(JobManager(context.app.connector))


@queue.periodic("* * * * *", name="queue.tidy", title="Delete superseded failures", queue="queue")
def tidy(timestamp: int) -> None:
    """Deletes jobs that operators need not see, every minute."""
    queue.forgive_superseded()
    queue.forget_resets()


@queue.periodic(
    "17 3 * * *", name="queue.forget", title="Delete old jobs", queue="queue", pass_context=True
)
async def forget(context: JobContext, timestamp: int) -> None:
    """Deletes old jobs, every night."""
    await queue.forget_old(context.app.job_manager)
