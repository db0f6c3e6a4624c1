"""Rolls back, halts and resumes a channel, for a release that must not spread.

A shell installs only versions newer than its own. So this keeps other shells from a bad release; only a newer version
changes the shells that have it.
"""

from datetime import datetime

from django.db import transaction

from accounts.audit import Actor, record
from config.api.problems import Fault, InvalidRequest, Problem
from releases import leases
from releases.delivery import storage_sync
from releases.models import AN_OPERATOR, Publication, ShellChannel


class ChannelHalted(Problem):
    code = "channel_halted"
    status = 409
    title = "Channel halted"
    default_detail = "An operator has halted this channel. Publish again when it is resumed."


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
    """Makes a channel offer an earlier release with its original signature; returns whether storage has it already.

    Needs no new signature: the bytes and the signature were published before. A pipeline cannot undo a rollback by a
    repeated publish, because its next signature has to be newer than all earlier ones. Raises ``InvalidRequest`` for
    an unknown target, and ``PublishInProgress``.
    """
    with transaction.atomic():
        lease = leases.take(channel=channel)
        current = Publication.objects.of(channel).wanted().first()
        chosen = next((each for each in earlier(channel) if each.pk == publication_id), None)
        if chosen is None or current is None:
            sentence = "The channel cannot roll back to this publication."
            raise InvalidRequest(errors=[Fault("/to", "unknown", sentence)])
        Publication.objects.create(
            release=chosen.release,
            signature=chosen.signature,
            signed_at=chosen.signed_at,
            published_at=now,
            published_by=f"{AN_OPERATOR} {by.id}" if by.id else AN_OPERATOR,
        )
        storage_sync.begin(channel=channel, now=now)
        before, after = ({"version": each.release.version} for each in (current, chosen))
        record(
            "release:rolled_back",
            channel,
            target_id=channel,
            by=by,
            now=now,
            reason=reason,
            before=before,
            after=after,
        )
    return storage_sync.place_at_once(channel=channel, lease=lease, now=now)


def halt(*, channel: str, reason: str, by: Actor, now: datetime) -> bool:
    """Makes a channel offer nothing; returns whether storage has removed its files already.

    Ends a publish in progress. Raises ``InvalidRequest`` for a halted channel.
    """
    with transaction.atomic():
        lease = leases.seize(channel=channel)
        _switch(channel, halted_at=now, action="release:halted", reason=reason, by=by, now=now)
    return storage_sync.place_at_once(channel=channel, lease=lease, now=now)


def resume(*, channel: str, reason: str, by: Actor, now: datetime) -> bool:
    """Makes a halted channel offer its current release again; returns whether storage has it already.

    Does not finish a publish that the halt ended: its pipeline has to repeat it.
    """
    with transaction.atomic():
        lease = leases.seize(channel=channel)
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
        state = "halted" if halted_at else "running"
        raise InvalidRequest(f"The channel is already {state}.")
    current = Publication.objects.of(channel).wanted().first()
    storage_sync.begin(channel=channel, now=now)
    after = {"version": current.release.version if current else None}
    record(action, channel, target_id=channel, reason=reason, by=by, now=now, after=after)
