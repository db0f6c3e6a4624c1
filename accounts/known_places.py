"""Where an account has signed in from before, so that strangers who guess at it cannot lock its owner out.

Failed sign-ins of an account are limited. Counted all together, a stranger who keeps failing would keep its owner
out; so each place that the account is known at counts for itself, and all others together. A place is a device by
its fingerprint, or an address (of IPv6 a /64, as for all limits).
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from uuid import UUID

from django.db.models import Q

from accounts.models import AuditEvent
from accounts.sign_in import Device
from config.database import prepared
from config.ratelimits import FailureLimit

# By this the audit log knows an operator's sign-in to the console.
OPERATOR_SIGNED_IN = "operator:signed_in"

Limits = Sequence[tuple[FailureLimit, str]]


def limits_of_sign_in(*, email: str, device: Device) -> Limits:
    """The limits that a failed sign-in of a shell counts against, with their keys."""
    account = email.lower()
    at_device, at_address = _known(account, device)
    if at_device:
        return [("auth.account", f"{account} at device {device.fingerprint}")]
    return _limits(account, device.address, known=at_address)


# One statement whoever asks, so that it tells nobody anything by the time it takes.
_KNOWN = """
SELECT EXISTS (
           SELECT FROM accounts_session session
           WHERE session.user_id = person.id AND session.device_fp = %(device)s
       ),
       EXISTS (
           SELECT FROM accounts_session session
           WHERE session.user_id = person.id
             AND (session.started_from <<= %(network)s::inet OR session.last_used_from <<= %(network)s::inet)
       )
FROM accounts_user person
WHERE person.email = %(account)s
"""


def _known(account: str, device: Device) -> tuple[bool, bool]:
    """Whether an account has signed in on this device before, and whether from this address."""
    network = str(_network(device.address)) if device.address else None
    with prepared() as cursor:
        cursor.execute(
            _KNOWN, {"account": account, "device": device.fingerprint or None, "network": network}
        )
        row: tuple[bool, bool] | None = cursor.fetchone()
    return row or (False, False)


def limits_of_operator(*, email: str, address: str) -> Limits:
    """The same for the console, which knows no devices."""
    account = email.lower()
    signed_in = AuditEvent.objects.filter(action=OPERATOR_SIGNED_IN, actor=account)
    return _limits(account, address, known=signed_in.filter(_within("address", address)).exists())


def limits_of_holder(*, user_id: UUID) -> Limits:
    """The limit of somebody signed in who proves to know the password: what strangers do does not count."""
    return [("auth.account", f"{user_id} signed in")]


def _limits(account: str, address: str | None, *, known: bool) -> Limits:
    if known and address:
        return [("auth.account", f"{account} at {_network(address)}")]
    return [("auth.account", account), ("auth.all", "")]


def _within(column: str, address: str | None) -> Q:
    if not address:
        return Q(pk__in=())
    network = _network(address)
    return Q(**{f"{column}__gte": str(network[0]), f"{column}__lte": str(network[-1])})


def _network(address: str) -> IPv4Network | IPv6Network:
    bits = 64 if ip_address(address).version == 6 else 32
    return ip_network(f"{address}/{bits}", strict=False)
