"""Where an account has signed in from before, so that strangers who guess at it cannot lock its owner out.

Failed sign-ins of an account are limited. Counted all together, a stranger who keeps failing would keep its owner
out; so each place that the account is known at counts for itself, and all others together. A place is a device by
its fingerprint, or an address (of IPv6 a /64, as for all limits).
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q

from accounts.models import AuditEvent
from config.rates import FailureLimit

# By this the audit log knows an operator's sign-in to the console.
OPERATOR_SIGNED_IN = "operator:signed_in"

Limits = Sequence[tuple[FailureLimit, str]]


# Two columns of a row called ``person``: whether they have signed in on a device before, and whether from an address.
# Nobody has at NULL.
KNOWN = """
EXISTS (
    SELECT FROM accounts_session session
    WHERE session.user_id = person.id AND session.device_fp = %(device)s
),
EXISTS (
    SELECT FROM accounts_session session
    WHERE session.user_id = person.id
      AND (session.started_from <<= %(network)s::inet OR session.last_used_from <<= %(network)s::inet)
)
"""


class Place(NamedTuple):
    """Where somebody signs in: the fingerprint of a device and an address, as far as they are known."""

    device: str
    address: str | None

    def values(self) -> dict[str, str | None]:
        """What ``KNOWN`` asks for."""
        network = str(_network(self.address)) if self.address else None
        return {"device": self.device or None, "network": network}


def limits_of_sign_in(*, account: str, place: Place, at_device: bool, at_address: bool) -> Limits:
    """The limits that a failed sign-in of a shell counts against, with their keys. ``KNOWN`` says the last two."""
    if at_device:
        return [_key("device", account, place.device)]
    return _limits(account, place.address, known=at_address)


def limits_of_operator(*, email: str, address: str) -> Limits:
    """The same for the console, which knows no devices."""
    account = email.lower()
    signed_in = AuditEvent.objects.filter(action=OPERATOR_SIGNED_IN, actor=account)
    return _limits(account, address, known=signed_in.filter(_within("address", address)).exists())


def limits_of_holder(*, user_id: UUID) -> Limits:
    """The limit of somebody signed in who proves to know the password: what strangers do does not count."""
    return [_key("signed in", str(user_id))]


def _limits(account: str, address: str | None, *, known: bool) -> Limits:
    if known and address:
        return [_key("address", account, str(_network(address)))]
    return [_key("account", account), ("auth.all", "")]


def _key(*parts: str) -> tuple[FailureLimit, str]:
    """Told apart by lengths: an account is whatever somebody types, and must not read as the place of another's."""
    return "auth.account", "".join(f"{len(part)}:{part}" for part in parts)


def _within(column: str, address: str | None) -> Q:
    if not address:
        return Q(pk__in=())
    network = _network(address)
    return Q(**{f"{column}__gte": str(network[0]), f"{column}__lte": str(network[-1])})


def _network(address: str) -> IPv4Network | IPv6Network:
    bits = 64 if ip_address(address).version == 6 else 32
    return ip_network(f"{address}/{bits}", strict=False)
