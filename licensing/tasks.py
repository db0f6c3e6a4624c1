"""The worker's tasks for licences."""

from config.db.connections import database_now
from config.jobs.queue import periodic, task
from licensing.licences import end_operator_words


@periodic(cron="3 * * * *")
@task(name="licensing.end_words", queue="licensing", queueing_lock="licensing.end_words")
def end_words(timestamp: int) -> None:
    """Hourly: removes expired operators' statuses."""
    end_operator_words(now=database_now())
