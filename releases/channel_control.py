"""Rolls back, halts and resumes a channel, for a release that must not spread.

A shell takes no version that is not newer than its own, whatever it is offered. So none of this changes a shell
that has updated already; it stops the others from following. Only a newer version changes those.
"""

from datetime import datetime

from django.db import transaction

from accounts.audit import Actor, record
from config.api.problems import Fault, InvalidRequest, Problem
from releases import leases
from releases.delivery import storage_sync
from releases.leases import Lease
from releases.models import AN_OPERATOR, Publication, ShellChannel


class ChannelHalted(Problem):
    code = "channel_halted"
    status = 409
    title = "Channel halted"
    default_detail = "An operator has halted this channel. Publish again once it has been resumed."


def refuse_halted(channel: str) -> None:
    """Raises ``ChannelHalted``."""
    if ShellChannel.objects.filter(pk=channel, halted_at__isnull=False).exists():
        raise ChannelHalted


def earlier(channel: str) -> list[Publication]:
    """The publications to roll back to: the last of each release but the current one, newest first."""
    stored = Publication.objects.of(channel).stored().defer("signature", "release__manifest")
    current = Publication.objects.of(channel).wanted().values_list("release_id", flat=True).first()
    last: dict[int, Publication] = {}
    for each in stored:
        last.setdefault(each.release_id, each)
    return [each for release, each in last.items() if release != current]


def roll_back(*, channel: str, publication_id: int, reason: str, by: Actor, now: datetime) -> bool:
    """Has a channel offer an earlier release again, with the signature that it had; whether storage has it already.

    Bytes and signature have been published before, so no new signature is needed: whoever may do this could halt
    the channel too. A pipeline cannot undo it by repeating a publish, because what it signs next has to be newer than
    everything signed before. Raises ``InvalidRequest`` for what cannot be gone back to, and ``PublishInProgress``.
    """
    with transaction.atomic():
        lease = leases.take(channel=channel)
        before = Publication.objects.of(channel).wanted().first()
        chosen = next((each for each in earlier(channel) if each.pk == publication_id), None)
        if chosen is None or before is None:
            raise InvalidRequest(
                errors=[Fault("/to", "unknown", "The channel cannot go back to that.")]
            )
        Publication.objects.create(
            release=chosen.release,
            signature=chosen.signature,
            signed_at=chosen.signed_at,
            published_at=now,
            published_by=f"{AN_OPERATOR} {by.id}" if by.id else AN_OPERATOR,
        )
        storage_sync.begin(channel=channel, now=now)
        record(
            "release:rolled_back",
            by=by,
            now=now,
            target=channel,
            target_id=channel,
            reason=reason,
            before={"version": before.release.version},
            after={"version": chosen.release.version},
        )
    return storage_sync.place_at_once(channel=channel, lease=lease, now=now)


def halt(*, channel: str, reason: str, by: Actor, now: datetime) -> bool:
    """Has a channel offer nothing; whether storage has nothing already.

    Ends a publish that is under way. Raises ``InvalidRequest`` where it is halted already.
    """
    with transaction.atomic():
        lease = leases.seize(channel=channel)
        _switch(channel, halted_at=now, action="release:halted", reason=reason, by=by, now=now)
    return storage_sync.place_at_once(channel=channel, lease=lease, now=now)


def resume(*, channel: str, reason: str, by: Actor, now: datetime) -> bool:
    """Has a halted channel offer again what it did, or what it was rolled back to; whether storage has it already.

    A publish that the halt ended is not finished by this: its pipeline has to repeat it.
    """
    with transaction.atomic():
        lease: Lease = leases.seize(channel=channel)
        _switch(channel, halted_at=None, action="release:resumed", reason=reason, by=by, now=now)
    return storage_sync.place_at_once(channel=channel, lease=lease, now=now)


def _switch(
    channel: str,
    *,
    halted_at: datetime | None,
    action: str,
    reason: str,
    by: Actor,
    now: datetime,
) -> None:
    other_way = ShellChannel.objects.filter(pk=channel, halted_at__isnull=halted_at is not None)
    if not other_way.update(halted_at=halted_at):
        raise InvalidRequest("The channel is so already.")
    current = Publication.objects.of(channel).wanted().first()
    storage_sync.begin(channel=channel, now=now)
    record(
        action,
        by=by,
        now=now,
        target=channel,
        target_id=channel,
        reason=reason,
        after={"version": current.release.version if current else None},
    )
