"""The worker's tasks for licences."""

from config.db.connections import database_now
from config.jobs.queue import periodic, task
from licensing.licences import expire_operator_decisions


@periodic(cron="3 * * * *")
@task(name="licensing.end_words", queue="licensing", queueing_lock="licensing.end_words")
def expire_decisions(timestamp: int) -> None:
    """Hourly: removes expired operators' statuses."""
    expire_operator_decisions(now=database_now())
