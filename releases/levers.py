"""Rules for versions in notices to shells: a minimum, a pin, a channel. Each is refused where shells could not follow.

The licence status has them for a client, or for all clients without their own (:mod:`licensing.notices`).
"""

from collections.abc import Iterator
from datetime import datetime

from accounts.audit import Actor
from config.platform.problems.problem import Fault, InvalidRequest
from config.platform.text.versions import NotAVersion, Version
from licensing import notices
from licensing.models import Licence, ShellNotice
from releases.updates import FIRST_CHANNEL, channel_offer, is_known, pinned_offer


def set_minimum_version(
    *, licence_id: int | None, minimum: str, reason: str, by: Actor, now: datetime
) -> ShellNotice:
    """Sets the least version of a client's shells, or of all shells (None); "" for none.

    Raises ``InvalidRequest`` for what is no version, and for one above what a channel or a client's pin offers to all:
    their shells would show an update screen and find no update.
    """
    check_minimum(licence_id=licence_id, minimum=minimum)
    return notices.set_minimum_version(
        licence_id=licence_id, minimum=minimum, reason=reason, by=by, now=now
    )


def check_minimum(*, licence_id: int | None, minimum: str) -> None:
    """Raises ``InvalidRequest`` as ``set_minimum_version`` does."""
    if not minimum:
        return
    least = _version(minimum, "minimum")
    for whose, offered in _offers(licence_id):
        if offered is None or offered < least:
            has = f"offers {offered}" if offered else "offers nothing to all"
            sentence = f"{whose} {has}: shells below {least} would have nothing to update to."
            raise InvalidRequest(errors=[Fault("/minimum", "unreachable", sentence)])


def set_shell(
    *, licence_id: int | None, channel: str, version: str, reason: str, by: Actor, now: datetime
) -> ShellNotice:
    """Sets the channel that shells update from and the version that they are pinned to; "" for their own choice.

    Raises ``InvalidRequest`` for an unknown channel, for a version that the channel never published or that was
    withdrawn, and for one below the minimum that applies.
    """
    from_channel = channel or FIRST_CHANNEL
    minimum = _notice_of(licence_id).minimum_version or notices.service_notice().minimum_version
    if channel and not is_known(channel):
        raise InvalidRequest(errors=[Fault("/channel", "unknown", "There is no such channel.")])
    offered = _offered(from_channel, version, member="version")
    if version and pinned_offer(from_channel, _version(version, "version")).whole is None:
        sentence = f"{from_channel} never published {version}, or it was withdrawn."
        raise InvalidRequest(errors=[Fault("/version", "unknown", sentence)])
    if minimum and (channel or version) and (offered is None or offered < Version.parse(minimum)):
        sentence = (
            f"The minimum version is {minimum}; {from_channel} would offer {offered or 'nothing'}."
        )
        member = "/version" if version else "/channel"
        raise InvalidRequest(errors=[Fault(member, "below_minimum", sentence)])
    return notices.set_shell(
        licence_id=licence_id, channel=channel, version=version, reason=reason, by=by, now=now
    )


def minimums_above(channel: str, version: str | None) -> list[tuple[str, str]]:
    """Returns the minimums above a version of the channel (None: nothing at all), each with its client or all shells.

    Shells below it would have nothing to update to while the channel offers no more.
    """
    offered = Version.parse(version) if version else None
    service = notices.service_notice()
    noticed: list[tuple[str, ShellNotice]] = [("All shells", service)]
    noticed += [
        (str(each.client), each)
        for each in Licence.objects.exclude(minimum_version="").select_related("client")
    ]
    return [
        (whose, notice.minimum_version)
        for whose, notice in noticed
        if notice.minimum_version
        and _channel(notice, service) == channel
        and (offered is None or offered < Version.parse(notice.minimum_version))
    ]


def _offers(licence_id: int | None) -> Iterator[tuple[str, Version | None]]:
    """The versions that these shells can reach, each with the name of what offers it to all of them."""
    service = notices.service_notice()
    if licence_id is not None:
        licence = Licence.objects.select_related("client").get(pk=licence_id)
        channel = _channel(licence, service)
        yield channel, _offered(channel, "")
        own = licence.shell_channel or licence.shell_version
        if pinned := licence.shell_version if own else service.shell_version:
            yield f"The pin of {licence.client}", _offered(channel, pinned)
        return
    channels = Licence.objects.filter(minimum_version="").values_list("shell_channel", flat=True)
    own_channel = service.shell_channel or FIRST_CHANNEL
    for channel in sorted({own_channel, *filter(None, channels.order_by().distinct())}):
        yield channel, _offered(channel, "")


def _offered(channel: str, version: str, *, member: str = "minimum") -> Version | None:
    """The version that a channel offers to all, or that of a pin; None while that is nothing."""
    offer = pinned_offer(channel, _version(version, member)) if version else channel_offer(channel)
    return None if offer.whole is None or offer.is_halted else offer.whole.version


def _channel(notice: ShellNotice, service: ShellNotice) -> str:
    return notice.shell_channel or service.shell_channel or FIRST_CHANNEL


def _notice_of(licence_id: int | None) -> ShellNotice:
    if licence_id is None:
        return notices.service_notice()
    return Licence.objects.get(pk=licence_id)


def _version(text: str, member: str) -> Version:
    """Raises ``InvalidRequest``."""
    try:
        return Version.parse(text)
    except NotAVersion as error:
        raise InvalidRequest(errors=[Fault(f"/{member}", "invalid_version", str(error))]) from None
