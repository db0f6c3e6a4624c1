"""Storage gets what a channel offers now, as its row and its publications say. Publishing does the same for itself.

An operator's act is a row first, then a queued job; the request of the act tries at once what the job would do
later. Whoever dies in between leaves the job. A publish queues it too before it writes: where that is not finished,
the job gives storage back the pair of manifest and signature that it had.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models.functions import Now
from procrastinate.contrib.django import app

from config.db.connections import release_connection
from releases import leases
from releases.delivery import purging, storage
from releases.delivery.storage import StorageUnavailable
from releases.leases import Lease, PublishInProgress
from releases.models import Publication, ShellChannel

# Past the lease of whoever does it at once, so that a killed one's has run out.
MARGIN = timedelta(seconds=15)


def begin(*, channel: str, now: datetime) -> None:
    """Storage has to follow: notes it and queues the job, for when the lease of now has run out.

    Call it in the transaction of the act, with the lease.
    """
    ShellChannel.objects.filter(pk=channel).update(unplaced_since=now)
    # The lease's end is by the database's clock: ``now`` may be minutes ago, when a publish had yet to verify.
    leased_until = ShellChannel.objects.values_list("leased_until", flat=True).get(pk=channel)
    at = max(now, leased_until or now) + MARGIN
    job = app.configure_task("releases.place", queue="releases", schedule_at=at)
    job.defer(channel=channel)


def done(*, channel: str) -> None:
    """Storage has it; the queued job does nothing. Call it in the transaction that ends the lease."""
    ShellChannel.objects.filter(pk=channel).update(unplaced_since=None)


def place_at_once(*, channel: str, lease: Lease, now: datetime) -> bool:
    """What the queued job would do, with a lease that is held already; False where that job has to."""
    try:
        _place(channel, lease, now=now)
    except (StorageUnavailable, PublishInProgress):
        leases.give_back(lease)
        return False
    return True


def place(*, channel: str, now: datetime) -> None:
    """Does it, unless it has been done. Raises ``PublishInProgress`` and ``StorageUnavailable``: try again then."""
    with transaction.atomic():
        if not ShellChannel.objects.filter(pk=channel, unplaced_since__isnull=False).exists():
            return
        lease = leases.take(channel=channel)
    try:
        _place(channel, lease, now=now)
    except BaseException:
        leases.give_back(lease)
        raise


def write(publication: Publication, *, lease: Lease) -> None:
    """The signature, then the manifest, which is the moment that counts.

    Each write has a full term of the lease before it, which is longer than a write may take. Only a process that
    was frozen in mid-write could still write after its term; whatever is placed next mends that.
    """
    release = publication.release
    path = storage.pointer_path(release.channel_id)
    lease.renew()
    storage.put(f"{path}{storage.SIGNATURE_SUFFIX}", bytes(publication.signature))
    lease.renew()
    storage.put(path, bytes(release.manifest))


def _place(channel: str, lease: Lease, *, now: datetime) -> None:
    """The connection is given back before storage is asked, each time that the lease is renewed."""
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
            # Nobody waits for an answer that says whether it is done, so the worker begins at once.
            purging.queue(purge.pk, now)
    release_connection()


def _remove(channel: str, *, lease: Lease) -> None:
    """The manifest first: without it nobody looks for a signature."""
    path = storage.pointer_path(channel)
    for name in (path, f"{path}{storage.SIGNATURE_SUFFIX}"):
        lease.renew()
        storage.remove(name)
