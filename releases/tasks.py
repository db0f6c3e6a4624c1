"""What the worker does for releases."""

from django.utils import timezone

from config.jobs.queue import BACKOFF, periodic, task
from releases.delivery import purging, storage_sync


@task(name="releases.purge", queue="releases")
def purge(purge_id: int) -> None:
    """The CDN is told and read back. A failure queues the next try by itself."""
    purging.confirm(purge_id=purge_id, now=timezone.now())


@task(name="releases.place", queue="releases", retry=BACKOFF)
def place(channel: str) -> None:
    """Storage gets what an operator has a channel offer, where the request of that act could not do it."""
    storage_sync.place(channel=channel, now=timezone.now())


@periodic(cron="*/5 * * * *")
@task(name="releases.tidy", queue="releases", queueing_lock="releases.tidy")
def tidy(timestamp: int) -> None:
    """Every five minutes: purges whose job was lost are queued again."""
    purging.queue_overdue(now=timezone.now())
