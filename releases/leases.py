"""One publish at a time on a channel, without holding a lock while artifacts and storage are waited for.

A lease is a row's number and its end. The database's clock decides, because it is the only one that all
processes share. Whoever dies leaves a lease that ends by itself; whoever comes back after that finds a newer
number and stops.
"""

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

from django.db import DatabaseError
from django.db.models import F, Q
from django.db.models.functions import Now

from config.api.problems import Problem
from config.db.connections import release_connection
from releases.models import ShellChannel

# Longer than any single step between two calls of keep(): one silence of a CDN, one write to storage. Only a write
# whose answer trickles may take longer.
LEASE = timedelta(seconds=30)
RENEW_AFTER = LEASE.total_seconds() / 4

log = logging.getLogger(__name__)


class PublishInProgress(Problem):
    code = "publish_in_progress"
    status = 409
    title = "Publish in progress"
    default_detail = "Another publish on this channel is under way. Repeat this one in a minute."

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, headers={"Retry-After": str(int(LEASE.total_seconds()))})


@dataclass(slots=True)
class Lease:
    """The right to write a channel, for as long as it is kept."""

    channel: str
    fence: int
    _renewed: float = field(default_factory=monotonic)

    def keep(self) -> None:
        """Goes on for a full term. Call it while waiting for others; it asks the database only now and then.

        Raises ``PublishInProgress`` where another publish has taken over.
        """
        if monotonic() - self._renewed > RENEW_AFTER:
            self.renew()

    def renew(self) -> None:
        """A full term from now on, or ``PublishInProgress``; gives the connection back."""
        self._set(until=Now() + LEASE)
        self._renewed = monotonic()
        release_connection()

    def end(self) -> None:
        """Ends it, or raises ``PublishInProgress`` where it was another's already."""
        self._set(until=None)

    def _set(self, *, until: object) -> None:
        ours = ShellChannel.objects.filter(pk=self.channel, fence=self.fence)
        if not ours.update(leased_until=until):
            raise PublishInProgress("This took too long, and another publish has taken over.")


def take(*, channel: str) -> Lease:
    """The lease of a channel, which is made where it is missing; raises ``PublishInProgress``.

    Call it in a transaction: until that ends nobody else gets past here.
    """
    ShellChannel.objects.bulk_create([ShellChannel(name=channel)], ignore_conflicts=True)
    free = ShellChannel.objects.filter(
        Q(leased_until__isnull=True) | Q(leased_until__lte=Now()), pk=channel
    )
    if not free.update(fence=F("fence") + 1, leased_until=Now() + LEASE):
        raise PublishInProgress
    return Lease(channel, ShellChannel.objects.values_list("fence", flat=True).get(pk=channel))


def seize(*, channel: str) -> Lease:
    """The lease of a channel that exists, whoever holds it: an operator's word waits for no publish.

    Whoever held it stops at the next step, with ``PublishInProgress``.
    """
    channels = ShellChannel.objects.filter(pk=channel)
    channels.update(fence=F("fence") + 1, leased_until=Now() + LEASE)
    return Lease(channel, channels.values_list("fence", flat=True).get())


def give_back(lease: Lease) -> None:
    """The next one need not wait for the lease to run out; where the database is away, it has to."""
    try:
        lease.end()
    except (PublishInProgress, DatabaseError):
        log.warning("lease_not_given_back", extra={"channel": lease.channel})
