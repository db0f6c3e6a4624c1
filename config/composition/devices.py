"""Devices of people: each install that signed in, with its own description, and its channel's offer.

Devices are read from sessions, so a device is known for as long as one of its sessions is kept. A shell says its
version as it signs in.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest

from accounts.device_names import shell_of
from accounts.models import AuditEvent, Session, User
from accounts.models.sessions import live_tokens
from accounts.sessions.devices import ACTION as REFUSED
from accounts.sessions.devices import devices_held
from config.console.navigation import page_of
from config.console.tables import Chip, Column, Link, Row, Table
from config.platform.problems.problem import InvalidRequest
from licensing.models import DevicesFull, Licence
from releases.updates import FIRST_CHANNEL, ChannelOffer, channel_offer, version_of

SHOWN = 10
# Sessions that are looked at for them, the last used first: a device may have many.
LOOKED_AT = 200
SEES_CHANNELS = "releases.view_shellchannel"
UNNAMED: Final = "Unknown device"


class Device(NamedTuple):
    """A person's install, with its last used session, and whether one of its sessions is live."""

    session: Any
    is_signed_in: bool


class DeviceUse(NamedTuple):
    """The devices that a person is signed in on, of those that the licence allows."""

    used: int
    limit: int
    oldest_leaves: bool
    # The latest sign-in that was refused for one more device.
    refused_at: datetime | None

    @property
    def is_full(self) -> bool:
        return self.used >= self.limit


def device_use(user: User, *, now: datetime) -> DeviceUse | None:
    """Returns a person's use of their devices; None where the licence has no limit."""
    licence: Licence | None = getattr(user.client, "licence", None)
    if licence is None or licence.devices is None:
        return None
    refused = AuditEvent.objects.filter(target_id=str(user.pk), action=REFUSED).order_by("-at")
    return DeviceUse(
        len(devices_held(user, at=now)),
        licence.devices,
        licence.devices_full == DevicesFull.OLDEST,
        refused.values_list("at", flat=True).first(),
    )


def devices_of(sessions: QuerySet[Session], *, now: datetime) -> list[Device]:
    """Returns the devices of these sessions, the last used first."""
    recent = sessions.select_related("user").annotate(has_tokens=live_tokens(at=now))
    found: dict[tuple[UUID, str], list[Any]] = {}
    for session in recent.order_by("-last_used_at", "pk")[:LOOKED_AT]:
        found.setdefault((session.user_id, session.device_fp or session.agent), []).append(session)
    return [
        Device(theirs[0], any(each.has_tokens and each.ended_at is None for each in theirs))
        for theirs in list(found.values())[:SHOWN]
    ]


def table_of(devices: Sequence[Device], *, by: HttpRequest, whose: bool) -> Table:
    """Returns the devices as a table; with their people where ``whose``."""
    sees_offers = by.user.has_perm(SEES_CHANNELS)
    has_shells = any(shell_of(each.session.agent)[0] for each in devices)
    offer = channel_offer(FIRST_CHANNEL) if sees_offers and has_shells else None
    rows = []
    for device in devices:
        session = device.session
        name = session.device or UNNAMED
        version, platform = shell_of(session.agent)
        chip = Chip("well", "Signed in") if device.is_signed_in else Chip("over", "Signed out")
        cells: list[Any] = [name, platform, version, session.device_fp, session.last_used_at, chip]
        if offer is not None:
            cells.append(_offered(version, offer))
        if whose:
            person = session.user
            cells.insert(1, Link(str(person), page_of(person)))
        rows.append(Row(cells, href=page_of(session)))
    columns = [Column("Device"), *([Column("Person")] if whose else [])]
    columns += [Column("Platform"), Column("Shell"), Column("Install")]
    columns += [Column("Last seen", "time"), Column("State", "chip")]
    columns += [Column(f"{FIRST_CHANNEL.capitalize()} offers")] if offer is not None else []
    return Table(columns, rows, "Nobody has signed in yet.")


def _offered(version: str, channel: ChannelOffer) -> str:
    """Returns what a channel offers a shell of this version; "" for a browser, or a version that is none."""
    newest = channel.part or channel.whole
    try:
        current = version_of(version) if version else None
    except InvalidRequest:
        return ""
    if newest is None or current is None:
        return ""
    if not newest.is_newer_than(current):
        return "nothing newer"
    if channel.is_halted:
        return f"{newest.version}, but is halted"
    return f"{newest.version} to {channel.share} %" if channel.part else str(newest.version)
