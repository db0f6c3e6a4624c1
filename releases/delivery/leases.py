"""Leases allow one publish at a time on a channel, without a lock during waits for artifacts and storage.

A lease is a number (the fence) and an end by the database's clock, which all processes share. The lease of a crashed
process ends by itself; a process that resumes after that finds a newer number and stops.
"""

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

from django.db import DatabaseError
from django.db.models import F, Q
from django.db.models.functions import Now

from config.platform.db.connections import release_connection
from config.platform.problems.problem import Problem
from releases.models import ShellChannel

# Longer than any step between two calls of keep(): one silence of a CDN, one write to storage. Only a trickling answer
# may take longer.
LEASE = timedelta(seconds=30)
RENEW_AFTER = LEASE.total_seconds() / 4

log = logging.getLogger(__name__)


class PublishInProgress(Problem):
    code = "publish_in_progress"
    status = 409
    title = "Publish in progress"
    default_detail = "Another publish on this channel is in progress. Repeat this one in a minute."

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, headers={"Retry-After": str(int(LEASE.total_seconds()))})


@dataclass(slots=True)
class PublishLease:
    """The exclusive right to write a channel, until its end."""

    channel: str
    fence: int
    _renewed: float = field(default_factory=monotonic)

    def keep(self) -> None:
        """Renews the lease if a quarter of its term is over. Call it during waits.

        Raises ``PublishInProgress`` if another publish has taken over.
        """
        if monotonic() - self._renewed > RENEW_AFTER:
            self.renew()

    def renew(self) -> None:
        """Starts a new term or raises ``PublishInProgress``; gives the connection back."""
        self._set(until=Now() + LEASE)
        self._renewed = monotonic()
        release_connection()

    def end(self) -> None:
        """Ends the lease, or raises ``PublishInProgress`` if another publish has taken over."""
        self._set(until=None)

    def _set(self, *, until: object) -> None:
        ours = ShellChannel.objects.filter(pk=self.channel, fence=self.fence)
        if not ours.update(leased_until=until):
            raise PublishInProgress("This took too long, and another publish has taken over.")


def take(*, channel: str) -> PublishLease:
    """Takes the lease of a channel, which it creates if necessary; raises ``PublishInProgress``.

    Call it in a transaction, which excludes others until it ends.
    """
    ShellChannel.objects.bulk_create([ShellChannel(name=channel)], ignore_conflicts=True)
    free = ShellChannel.objects.filter(
        Q(leased_until__isnull=True) | Q(leased_until__lte=Now()), pk=channel
    )
    if not free.update(fence=F("fence") + 1, leased_until=Now() + LEASE):
        raise PublishInProgress
    return PublishLease(
        channel, ShellChannel.objects.values_list("fence", flat=True).get(pk=channel)
    )


def seize(*, channel: str) -> PublishLease:
    """Takes the lease of an existing channel from its holder, because an operator does not wait for a publish.

    The holder stops at its next step with ``PublishInProgress``.
    """
    channels = ShellChannel.objects.filter(pk=channel)
    channels.update(fence=F("fence") + 1, leased_until=Now() + LEASE)
    return PublishLease(channel, channels.values_list("fence", flat=True).get())


def give_back(lease: PublishLease) -> None:
    """Ends a lease early. Without the database the lease ends by itself."""
    try:
        lease.end()
    except (PublishInProgress, DatabaseError):
        log.warning("lease_not_given_back", extra={"channel": lease.channel})
