"""The worker's task of alerts."""

from config.composition.attention.notifying import notify
from config.platform.db.connections import database_now
from config.platform.jobs.queue import URGENT, periodic


@periodic(
    "* * * * *",
    name="attention.tell",
    title="Notify operators of alerts",
    queue="attention",
    priority=URGENT,
)
def notify_operators(timestamp: int) -> None:
    """Notifies operators of alerts that have begun or ended, every minute."""
    notify(now=database_now())
