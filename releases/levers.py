"""Rules for versions in notices to shells: a minimum, a pin, a channel. Each is refused where shells could not follow.

The licence status has them for a client, or for all clients without their own (:mod:`licensing.notices`).
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, Self

from django.db import transaction
from django.db.models import Q

from accounts.audit import Actor
from config.platform.db.advisory_locks import lock_until_commit
from config.platform.problems.problem import Fault, InvalidRequest
from config.platform.text.versions import NotAVersion, Version
from licensing import notices
from licensing.models import Licence, ShellNotice
from releases.manifests.platforms import base_of
from releases.models import ShellRelease
from releases.updates import FIRST_CHANNEL, ChannelOffer, channel_offer, is_known, pinned_offer

ALL = "all shells"
# Two at once could each be right, and leave a minimum above what shells get.
_LOCK = "minimums and sources of shells"


class Source(NamedTuple):
    """The origin of updates: a channel, and the version of it that shells are pinned to ("": the newest)."""

    channel: str
    pin: str

    @classmethod
    def of(cls, notice: ShellNotice, service: ShellNotice) -> Self:
        """A notice's own source, or else that of all shells: the licence status never mixes the two."""
        own = notice if has_source(notice) else service
        return cls(own.shell_channel or FIRST_CHANNEL, own.shell_version)


class Desk(NamedTuple):
    """The shells of a client with a notice, or all others: their minimum and their source."""

    whose: str
    notice: ShellNotice
    minimum: str
    source: Source

    @property
    def reach(self) -> tuple[str, str]:
        return self.minimum, self.source.channel

    def is_above(self, offered: Version | None) -> bool:
        """Returns whether the minimum is above a version, or there is a minimum and no version."""
        least = Version.parse(self.minimum) if self.minimum else None
        return least is not None and (offered is None or offered < least)


def set_minimum_version(
    *, licence_id: int | None, minimum: str, reason: str, by: Actor, now: datetime
) -> ShellNotice:
    """Sets the least version of a client's shells, or of all shells (None); "" for none.

    Raises ``InvalidRequest`` for what is no version, and for one above what a channel or a client's pin offers to all:
    their shells would show an update screen and find no update.
    """
    with transaction.atomic():
        lock_until_commit(_LOCK)
        check_minimum(licence_id=licence_id, minimum=minimum)
        return notices.set_minimum_version(
            licence_id=licence_id, minimum=minimum, reason=reason, by=by, now=now
        )


def check_minimum(*, licence_id: int | None, minimum: str) -> None:
    """Raises ``InvalidRequest`` as ``set_minimum_version`` does."""
    # A client without its own has that of all shells, which beats its pin.
    inherited = notices.service_notice().minimum_version if licence_id is not None else ""
    if not (minimum or inherited):
        return
    least = _version(minimum or inherited, "minimum")
    for whose, offered in _offers(licence_id, pins=bool(minimum)):
        if offered is None or offered < least:
            has = f"offers {offered}" if offered else "offers nothing to all"
            sentence = f"{whose} {has}: shells below {least} would have nothing to update to."
            raise InvalidRequest(errors=[Fault("/minimum", "unreachable", sentence)])


def set_shell(
    *, licence_id: int | None, channel: str, version: str, reason: str, by: Actor, now: datetime
) -> ShellNotice:
    """Sets the channel that shells update from and the version that they are pinned to; "" for their own choice.

    Raises ``InvalidRequest`` for an unknown channel, for a version that the channel never published or that was
    withdrawn, and where it leaves shells less than their minimum.
    """
    if channel and not is_known(channel):
        raise InvalidRequest(errors=[Fault("/channel", "unknown", "There is no such channel.")])
    from_channel = channel or FIRST_CHANNEL
    if version and pinned_offer(from_channel, _version(version, "version")).whole is None:
        sentence = f"{from_channel} never published {version}, or it was withdrawn."
        raise InvalidRequest(errors=[Fault("/version", "unknown", sentence)])
    with transaction.atomic():
        lock_until_commit(_LOCK)
        _check_source(licence_id=licence_id, channel=channel, version=version)
        return notices.set_shell(
            licence_id=licence_id, channel=channel, version=version, reason=reason, by=by, now=now
        )


def minimums_above(channel: str, version: str | None) -> list[tuple[str, str]]:
    """Returns the minimums above a version of the channel (None: nothing at all), each with its client or all shells.

    Shells below it would have nothing to update to while the channel offers no more.
    """
    return _above(_desks(), channel, Version.parse(version) if version else None)


def out_of_reach(channels: Iterable[str]) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """The channels that offer less than a minimum, with the version that they offer to all, and those minimums."""
    desks = _desks()
    for channel in {desk.source.channel for desk in desks if desk.minimum}.intersection(channels):
        offered = _offered(channel, "")
        if minimums := _above(desks, channel, offered):
            yield channel, str(offered or "nothing"), minimums


def _above(desks: Sequence[Desk], channel: str, offered: Version | None) -> list[tuple[str, str]]:
    of_all, *of_clients = desks
    # A client is named only where it differs from all shells.
    others = (each for each in of_clients if each.reach != of_all.reach)
    return [
        (desk.whose, desk.minimum)
        for desk in (of_all, *others)
        if desk.source.channel == channel and desk.is_above(offered)
    ]


def platforms_without_update(*, licence_id: int | None) -> list[str]:
    """The platforms of releases of the channel that what it offers to these shells was not built for."""
    source = _desk(_notice_of(licence_id), notices.service_notice()).source
    offered = _offer(source.channel, source.pin).whole
    releases = ShellRelease.objects.filter(channel=source.channel).values_list(
        "platforms", flat=True
    )
    had = {base_of(platform) for platforms in releases for platform in platforms}
    return sorted(had - offered.platforms) if offered else []


def _desks() -> list[Desk]:
    """All shells, and the clients with a minimum or a source of their own."""
    service = notices.service_notice()
    nothing = Q(minimum_version="", shell_channel="", shell_version="")
    licences = Licence.objects.exclude(nothing).select_related("client")
    return [_desk(each, service) for each in (service, *licences)]


def _desk(notice: ShellNotice, service: ShellNotice) -> Desk:
    whose = str(notice.client) if isinstance(notice, Licence) else ALL
    minimum = notice.minimum_version or service.minimum_version
    return Desk(whose, notice, minimum, Source.of(notice, service))


def _check_source(*, licence_id: int | None, channel: str, version: str) -> None:
    """Raises ``InvalidRequest`` where a new source would leave shells less than their minimum."""
    changed, service = _notice_of(licence_id), notices.service_notice()
    changed.shell_channel, changed.shell_version = channel, version
    desks = [_desk(changed, changed if licence_id is None else service)]
    if licence_id is None:
        notices_of_clients = (each.notice for each in _desks()[1:])
        desks += [_desk(each, changed) for each in notices_of_clients if not has_source(each)]
    for desk in desks:
        # A minimum beats the pin of all shells, and that one is not refused.
        offered = _offered(desk.source.channel, version if desk.notice is changed else "")
        if desk.is_above(offered):
            sentence = (
                f"The minimum version of {desk.whose} is {desk.minimum}; "
                f"{desk.source.channel} would offer {offered or 'nothing'}."
            )
            member = "/version" if version else "/channel"
            raise InvalidRequest(errors=[Fault(member, "below_minimum", sentence)])


def _offers(licence_id: int | None, *, pins: bool) -> Iterator[tuple[str, Version | None]]:
    """The versions that these shells can reach, each with the name of what offers it to all of them."""
    of_all, *of_clients = _desks()
    desk = _desk(_notice_of(licence_id), of_all.notice) if licence_id else of_all
    channels = {desk.source.channel}
    if licence_id is None:
        channels |= {each.source.channel for each in of_clients if not each.notice.minimum_version}
    for channel in sorted(channels):
        yield channel, _offered(channel, "")
    if pins and (pin := desk.source.pin):
        whose = desk.whose if has_source(desk.notice) else of_all.whose
        yield f"The pin of {whose}", _offered(desk.source.channel, pin)


def _offered(channel: str, version: str) -> Version | None:
    """The version that a channel offers to all, or that of a pin; None while that is nothing."""
    offer = _offer(channel, version)
    return None if offer.whole is None or offer.is_halted else offer.whole.version


def _offer(channel: str, version: str) -> ChannelOffer:
    return pinned_offer(channel, Version.parse(version)) if version else channel_offer(channel)


def has_source(notice: ShellNotice) -> bool:
    return bool(notice.shell_channel or notice.shell_version)


def _notice_of(licence_id: int | None) -> ShellNotice:
    if licence_id is None:
        return notices.service_notice()
    return Licence.objects.select_related("client").get(pk=licence_id)


def _version(text: str, member: str) -> Version:
    """Raises ``InvalidRequest``."""
    try:
        return Version.parse(text)
    except NotAVersion as error:
        raise InvalidRequest(errors=[Fault(f"/{member}", "invalid_version", str(error))]) from None
