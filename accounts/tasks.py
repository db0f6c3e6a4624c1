"""What the worker does for access."""

from django.utils import timezone

from accounts.retries import wipe_expired
from config.queue import periodic, task


@periodic(cron="7 * * * *")
@task(name="accounts.wipe_retries", queue="accounts", queueing_lock="accounts.wipe_retries")
def wipe_retries(timestamp: int) -> None:
    """Every hour: successors kept for a keyed retry are forgotten a day after they were made."""
    wipe_expired(now=timezone.now())
