"""Steers a channel: rolls back, halts and resumes it, and raises or ends the share of shells that a release has.

A shell installs only versions newer than its own. So this keeps other shells from a bad release; only a newer version
changes the shells that have it.
"""

from datetime import datetime
from typing import Any

from django.db import transaction

from accounts.audit import Actor, record
from config.platform.problems.problem import Fault, InvalidRequest, Problem
from releases.delivery import leases, storage_sync
from releases.models import AN_OPERATOR, WHOLE, Publication, ShellChannel


class ChannelHalted(Problem):
    code = "channel_halted"
    status = 409
    title = "Channel halted"
    default_detail = "An operator has halted this channel. Publish again once it is resumed."


def refuse_halted(channel: str) -> None:
    """Raises ``ChannelHalted``."""
    if ShellChannel.objects.filter(pk=channel, halted_at__isnull=False).exists():
        raise ChannelHalted


def earlier(channel: str) -> list[Publication]:
    """The publications to roll back to: the last of each release but the current one, newest first."""
    wanted = Publication.objects.of(channel).wanted().defer("signature", "release__manifest")
    current: int | None = None
    last: dict[int, Publication] = {}
    for each in wanted:
        current = current or each.release_id
        if each.stored_at is not None:
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
        _offer(chosen, by=by, now=now)
        before, after = ({"version": each.release.version} for each in (current, chosen))
        _record("release:rolled_back", channel, reason, before, after, by=by, now=now)
    return storage_sync.place_at_once(channel=channel, lease=lease, now=now)


def raise_share(*, channel: str, share: int, reason: str, by: Actor, now: datetime) -> bool:
    """Offers a release to a larger share of the shells, all of the earlier ones among them; with 100 to all.

    Returns False if storage has to get it for all and has not: until then its share keeps it. Raises
    ``InvalidRequest`` without such a release or for a share that is not larger, and ``PublishInProgress``.
    """
    with transaction.atomic():
        lease = leases.take(channel=channel) if share == WHOLE else None
        running = _rollout(channel)
        if not running.share < share <= WHOLE:
            sentence = f"A number above {running.share}, at most {WHOLE}."
            raise InvalidRequest(errors=[Fault("/share", "out_of_range", sentence)])
        before = {"version": running.release.version, "share": running.share}
        if lease is None:
            Publication.objects.filter(pk=running.pk).update(share=share)
        else:
            _offer(running, by=by, now=now)
        after = before | {"share": share}
        _record("release:share_raised", channel, reason, before, after, by=by, now=now)
    return lease is None or storage_sync.place_at_once(channel=channel, lease=lease, now=now)


def end_share(*, channel: str, reason: str, by: Actor, now: datetime) -> None:
    """Takes a release back from its share: all shells are offered the release before. Raises ``InvalidRequest``."""
    with transaction.atomic():
        running = _rollout(channel)
        Publication.objects.filter(pk=running.pk).update(ended_at=now)
        before = {"version": running.release.version, "share": running.share}
        _record("release:share_ended", channel, reason, before, None, by=by, now=now)


def halt(*, channel: str, reason: str, by: Actor, now: datetime) -> bool:
    """Makes a channel offer nothing; returns whether storage has removed its files already.

    Ends a publish in progress. Raises ``InvalidRequest`` for a halted channel.
    """
    return _switch("release:halted", channel, now, reason=reason, by=by, now=now)


def resume(*, channel: str, reason: str, by: Actor, now: datetime) -> bool:
    """Makes a halted channel offer its current release again; returns whether storage has it already.

    Does not finish a publish that the halt ended: its pipeline has to repeat it.
    """
    return _switch("release:resumed", channel, None, reason=reason, by=by, now=now)


def rollout(channel: str) -> Publication | None:
    """The publication for a share of the shells, unless another one waits for storage to take its place."""
    ours = Publication.objects.of(channel).defer("release__manifest")
    newest = (ours.served() | ours.wanted()).first()
    return newest if newest is not None and newest.is_partial else None


def _rollout(channel: str) -> Publication:
    """The publication for a share of the shells, with the channel's row locked."""
    ShellChannel.objects.select_for_update(no_key=True).filter(pk=channel).first()
    running = rollout(channel)
    if running is None:
        raise InvalidRequest("No release of this channel is offered to a share of the shells.")
    return running


def _offer(chosen: Publication, *, by: Actor, now: datetime) -> None:
    """Makes the channel offer an earlier publication's release, with its signature. Call it with the lease."""
    Publication.objects.create(
        release=chosen.release,
        signature=chosen.signature,
        signed_at=chosen.signed_at,
        published_at=now,
        published_by=f"{AN_OPERATOR} {by.id}" if by.id else AN_OPERATOR,
    )
    storage_sync.begin(channel=chosen.release.channel_id, now=now)


def _record(
    action: str, channel: str, reason: str, before: Any, after: Any, *, by: Actor, now: datetime
) -> None:
    how = {"before": before, "after": after}
    record(action, channel, target_id=channel, reason=reason, by=by, now=now, **how)


def _switch(
    action: str, channel: str, halted_at: datetime | None, *, reason: str, by: Actor, now: datetime
) -> bool:
    with transaction.atomic():
        lease = leases.seize(channel=channel)
        other_way = ShellChannel.objects.filter(pk=channel, halted_at__isnull=halted_at is not None)
        if not other_way.update(halted_at=halted_at):
            state = "halted" if halted_at else "running"
            raise InvalidRequest(f"The channel is already {state}.")
        current = Publication.objects.of(channel).wanted().first()
        storage_sync.begin(channel=channel, now=now)
        after = {"version": current.release.version if current else None}
        _record(action, channel, reason, None, after, by=by, now=now)
    return storage_sync.place_at_once(channel=channel, lease=lease, now=now)
