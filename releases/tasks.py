"""Queued jobs of releases."""

from django.utils import timezone

from config.platform.jobs.queue import BACKOFF, periodic, task
from releases.delivery import purging, storage_sync


@task(name="releases.purge", title="Purge the CDN", queue="releases")
def purge(purge_id: int) -> None:
    """Purges the CDN and checks its answers. A failure queues the next try."""
    purging.confirm(purge_id=purge_id, now=timezone.now())


@task(name="releases.place", title="Write a release to storage", queue="releases", retry=BACKOFF)
def place(channel: str) -> None:
    """Writes a channel's current release to storage, if the request that changed it could not."""
    storage_sync.place(channel=channel, now=timezone.now())


@periodic("*/5 * * * *", name="releases.tidy", title="Requeue lost purges", queue="releases")
def tidy(timestamp: int) -> None:
    """Queues purges again whose jobs were lost, every five minutes."""
    purging.queue_overdue(now=timezone.now())
