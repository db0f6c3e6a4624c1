"""Known places of an account: strangers who guess its password cannot lock its owner out.

The limit on failed sign-ins is counted separately for each place where the account has signed in before, and
together for all other places. A place is a device, by its fingerprint, or an address (for IPv6 a /64, as for all
limits).
"""

from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, Subquery

from accounts.models import AuditEvent, Session, User
from config.platform.edge.ratelimits.table import FailureLimit
from config.platform.text.forms import email_form

# The audit log's action for an operator's sign-in to the console.
OPERATOR_SIGNED_IN = "operator:signed_in"
# The latest sign-ins of a person by which a network is known or new.
LOOKED_AT = 200

Network = IPv4Network | IPv6Network
NOWHERE = Q(pk__in=())

Limits = Sequence[tuple[FailureLimit, str]]


class Place(NamedTuple):
    """The device fingerprint and the address of a sign-in; either may be unknown."""

    device: str
    address: str | None

    def known(self) -> dict[str, Exists]:
        """Annotations of a user query: whether a session used this device, this address, and this network.

        A network is wider than an address, because those of one provider change: a /24, or a /48 of IPv6.
        """
        sessions = Session.objects.filter(user=OuterRef("pk"))
        at_device = sessions.filter(device_fp=self.device) if self.device else sessions.none()
        return {
            "at_device": Exists(at_device),
            "at_address": Exists(sessions.filter(self._used(_place_of))),
            "at_network": Exists(sessions.filter(self._used(_network_of))),
        }

    def _used(self, network_of: Callable[[str], Network]) -> Q:
        if not self.address:
            return NOWHERE
        network = network_of(self.address)
        return _within("started_from", network) | _within("last_used_from", network)


def limits_of_sign_in(*, account: str, place: Place, at_device: bool, at_address: bool) -> Limits:
    """The limits and keys of a failed sign-in in a shell; ``Place.known`` supplies ``at_device`` and ``at_address``."""
    if at_device:
        return [_key("device", account, place.device)]
    return _limits(account, place.address, known=at_address)


def limits_of_operator(*, email: str, address: str) -> Limits:
    """The limits and keys of a failed sign-in in the console, which sees no device fingerprints."""
    account, operator = email_form(email), User.objects.by_email(email).values("email")[:1]
    here = _within("address", _place_of(address)) if address else NOWHERE
    signed_in = AuditEvent.objects.filter(here, action=OPERATOR_SIGNED_IN, actor=Subquery(operator))
    return _limits(account, address, known=signed_in.exists())


def limits_of_holder(*, user_id: UUID) -> Limits:
    """The limit of a signed-in person who types the password again; failures of strangers do not count."""
    return [_key("signed in", str(user_id))]


def limits_of_factor(*, user_id: UUID) -> Limits:
    """The limit of an operator who has given the password and types codes of the second factor."""
    return [_key("second factor", str(user_id))]


def mark_new_networks(sessions: Iterable[Any], *, of: UUID) -> None:
    """Marks the sessions of a person that began in a network from which they had not signed in lately."""
    operated = AuditEvent.objects.filter(action=OPERATOR_SIGNED_IN, actor_id=of)
    began = Session.objects.filter(user=of)
    latest = (
        *operated.values_list("at", "address")[:LOOKED_AT],
        *began.values_list("started_at", "started_from")[:LOOKED_AT],
    )
    seen = [(at, _network_of(address)) for at, address in latest if address]
    for each in sessions:
        here = each.started_from and _network_of(each.started_from)
        known = any(at < each.started_at and network == here for at, network in seen)
        each.is_from_new_network = bool(here) and not known


def _limits(account: str, address: str | None, *, known: bool) -> Limits:
    if known and address:
        return [_key("address", account, str(_place_of(address)))]
    return [_key("account", account), ("auth.all", "")]


def _key(*parts: str) -> tuple[FailureLimit, str]:
    """Prefixes each part with its length, because anybody can type an account name that imitates another key."""
    return "auth.account", "".join(f"{len(part)}:{part}" for part in parts)


def _within(column: str, network: Network) -> Q:
    return Q(**{f"{column}__gte": str(network[0]), f"{column}__lte": str(network[-1])})


def _place_of(address: str) -> Network:
    return _around(address, four=32, six=64)


def _network_of(address: str) -> Network:
    return _around(address, four=24, six=48)


def _around(address: str, *, four: int, six: int) -> Network:
    bits = six if ip_address(address).version == 6 else four
    return ip_network(f"{address}/{bits}", strict=False)
