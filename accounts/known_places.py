"""Where an account has signed in from before, so that strangers who guess at it cannot lock its owner out.

Failed sign-ins of an account are limited. Counted all together, a stranger who keeps failing would keep its owner
out; so each place that the account is known at counts for itself, and all others together. A place is a device by
its fingerprint, or an address (of IPv6 a /64, as for all limits).
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from uuid import UUID

from django.db.models import Q

from accounts.models import AuditEvent, Session
from accounts.sign_in import Device
from config.ratelimits import FailureLimit

# By this the audit log knows an operator's sign-in to the console.
OPERATOR_SIGNED_IN = "operator:signed_in"

Limits = Sequence[tuple[FailureLimit, str]]


def limits_of_sign_in(*, email: str, device: Device) -> Limits:
    """The limits that a failed sign-in of a shell counts against, with their keys."""
    account = email.lower()
    here = _within("started_from", device.address) | _within("last_used_from", device.address)
    if device.fingerprint:
        here |= Q(device_fp=device.fingerprint)
    # One query whoever asks, so that it tells nobody anything by the time it takes.
    known = Session.objects.filter(here, user__email=account).order_by()
    devices = set(known.values_list("device_fp", flat=True).distinct())
    if device.fingerprint in devices - {""}:
        return [("auth.account", f"{account} at device {device.fingerprint}")]
    return _limits(account, device.address, known=bool(devices))


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
