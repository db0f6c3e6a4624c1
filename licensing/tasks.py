"""The worker's tasks for licences."""

from config.db.connections import database_now
from config.jobs.queue import periodic
from licensing.licences import expire_operator_decisions


@periodic("3 * * * *", name="licensing.end_words", queue="licensing")
def expire_decisions(timestamp: int) -> None:
    """Hourly: removes expired operators' statuses."""
    expire_operator_decisions(now=database_now())
