"""Writes a channel's current release to storage, as its row and its publications define it.

An operator's action changes rows and queues a job; its request tries at once to do the work of the job, which remains
after a crash. A publish queues the job before it writes: if the publish does not finish, the job gives storage the
earlier manifest and signature again.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models.functions import Now
from procrastinate.contrib.django import app

from config.platform.db.connections import release_connection
from releases.delivery import leases, purging, storage
from releases.delivery.leases import PublishInProgress, PublishLease
from releases.delivery.storage import StorageUnavailable
from releases.models import Publication, ShellChannel

# The job runs after the end of the lease, even if its holder was killed.
MARGIN = timedelta(seconds=15)


def begin(*, channel: str, now: datetime) -> None:
    """Marks the channel and queues the job for the end of the current lease.

    Call it in the transaction of the change, with the lease.
    """
    ShellChannel.objects.filter(pk=channel).update(unplaced_since=now)
    # The lease ends by the database's clock; ``now`` may be minutes ago, before a publish verified its artifacts.
    leased_until = ShellChannel.objects.values_list("leased_until", flat=True).get(pk=channel)
    at = max(now, leased_until or now) + MARGIN
    job = app.configure_task("releases.place", queue="releases", schedule_at=at)
    job.defer(channel=channel)


def done(*, channel: str) -> None:
    """Makes the queued job do nothing. Call it in the transaction that ends the lease."""
    ShellChannel.objects.filter(pk=channel).update(unplaced_since=None)


def place_at_once(*, channel: str, lease: PublishLease, now: datetime) -> bool:
    """Does the work of the queued job under a lease; returns False if the job has to repeat it."""
    try:
        _place(channel, lease, now=now)
    except (StorageUnavailable, PublishInProgress):
        leases.give_back(lease)
        return False
    return True


def place(*, channel: str, now: datetime) -> None:
    """The work of the queued job, if not yet done. Raises ``PublishInProgress`` or ``StorageUnavailable`` to retry."""
    with transaction.atomic():
        if not ShellChannel.objects.filter(pk=channel, unplaced_since__isnull=False).exists():
            return
        lease = leases.take(channel=channel)
    try:
        _place(channel, lease, now=now)
    except BaseException:
        leases.give_back(lease)
        raise


def write(publication: Publication, *, lease: PublishLease) -> None:
    """Writes the signature, then the manifest, which is the moment of publishing.

    Each write starts a term of the lease, which is longer than a write may take. Only a frozen process could write
    after its term; the next placement repairs that.
    """
    release = publication.release
    path = storage.pointer_path(release.channel_id)
    lease.renew()
    storage.put(f"{path}{storage.SIGNATURE_SUFFIX}", bytes(publication.signature))
    lease.renew()
    storage.put(path, bytes(release.manifest))


def _place(channel: str, lease: PublishLease, *, now: datetime) -> None:
    """Each renewal of the lease gives the connection back before a write to storage."""
    halted = ShellChannel.objects.filter(pk=channel, halted_at__isnull=False).exists()
    shown = None if halted else Publication.objects.of(channel).wanted().first()
    if shown is None:
        _remove(channel, lease=lease)
    else:
        write(shown, lease=lease)
    with transaction.atomic():
        lease.end()
        done(channel=channel)
        if shown is not None:
            Publication.objects.filter(pk=shown.pk, stored_at=None).update(stored_at=Now())
        purge = purging.ask(channel=channel, publication=shown, now=now)
        if purge is not None:
            # No request waits for the purge, so the worker starts at once.
            purging.queue(purge.pk, now)
    release_connection()


def _remove(channel: str, *, lease: PublishLease) -> None:
    """Removes the manifest first: without it no shell reads the signature."""
    path = storage.pointer_path(channel)
    for name in (path, f"{path}{storage.SIGNATURE_SUFFIX}"):
        lease.renew()
        storage.remove(name)
