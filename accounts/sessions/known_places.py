"""Known places of an account: strangers who guess its password cannot lock its owner out.

The limit on failed sign-ins is counted separately for each place where the account has signed in before, and
together for all other places. A place is a device, by its fingerprint, or an address (for IPv6 a /64, as for all
limits).
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from accounts.models import AuditEvent, Session
from config.ratelimits.table import FailureLimit

# The audit log's action for an operator's sign-in to the console.
OPERATOR_SIGNED_IN = "operator:signed_in"

Limits = Sequence[tuple[FailureLimit, str]]


class Place(NamedTuple):
    """The device fingerprint and the address of a sign-in; either may be unknown."""

    device: str
    address: str | None

    def known(self) -> dict[str, Exists]:
        """Annotations of a user query: whether a session used this device, and this address."""
        sessions = Session.objects.filter(user=OuterRef("pk"))
        at_device = sessions.filter(device_fp=self.device) if self.device else sessions.none()
        at_address = _within("started_from", self.address) | _within("last_used_from", self.address)
        return {"at_device": Exists(at_device), "at_address": Exists(sessions.filter(at_address))}


def limits_of_sign_in(*, account: str, place: Place, at_device: bool, at_address: bool) -> Limits:
    """The limits and keys of a failed sign-in in a shell; ``Place.known`` supplies ``at_device`` and ``at_address``."""
    if at_device:
        return [_key("device", account, place.device)]
    return _limits(account, place.address, known=at_address)


def limits_of_operator(*, email: str, address: str) -> Limits:
    """The limits and keys of a failed sign-in in the console, which sees no device fingerprints."""
    account = email.lower()
    signed_in = AuditEvent.objects.filter(action=OPERATOR_SIGNED_IN, actor=account)
    return _limits(account, address, known=signed_in.filter(_within("address", address)).exists())


def limits_of_holder(*, user_id: UUID) -> Limits:
    """The limit of a signed-in person who types the password again; failures of strangers do not count."""
    return [_key("signed in", str(user_id))]


def limits_of_factor(*, user_id: UUID) -> Limits:
    """The limit of an operator who has given the password and types codes of the second factor."""
    return [_key("second factor", str(user_id))]


def _limits(account: str, address: str | None, *, known: bool) -> Limits:
    if known and address:
        return [_key("address", account, str(_network(address)))]
    return [_key("account", account), ("auth.all", "")]


def _key(*parts: str) -> tuple[FailureLimit, str]:
    """Prefixes each part with its length, because anybody can type an account name that imitates another key."""
    return "auth.account", "".join(f"{len(part)}:{part}" for part in parts)


def _within(column: str, address: str | None) -> Q:
    if not address:
        return Q(pk__in=())
    network = _network(address)
    return Q(**{f"{column}__gte": str(network[0]), f"{column}__lte": str(network[-1])})


def _network(address: str) -> IPv4Network | IPv6Network:
    bits = 64 if ip_address(address).version == 6 else 32
    return ip_network(f"{address}/{bits}", strict=False)
