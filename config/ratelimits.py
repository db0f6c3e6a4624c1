"""Every rate limit: how often one address or one person may ask before being told to wait.

These guard against abuse, at the edge; what a call may cost is a cap and stands in ``usage/caps.py``. Windows are
fixed, and begin at another moment for every key. What is kept is a hash of a key and never the key, so that no
address reaches the cache.

A limit ending in ``.ip`` counts per client address (an IPv6 address counts as its /64) and is applied here by
path, before any view. The others are spent by views:

    count("llm.user", key=str(user.pk), now=now)            # one of this call's limit, or RateLimited

What counts failures only is spent through ``config/attempts.py``.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from ipaddress import ip_address, ip_network
from typing import Literal, cast

from django.conf import settings
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponseBase

from config import counting
from config.client_address import address_of
from config.handlers import answer
from config.problems import RefusedUntil

AddressLimit = Literal["auth.ip", "status.ip", "publish.ip"]
KeyedLimit = Literal["llm.user", "telemetry.user"]
FailureLimit = Literal["auth.account", "auth.all"]

# The specified numbers; RATE_LIMITS overrides them by name.
DEFAULTS: Mapping[AddressLimit | KeyedLimit | FailureLimit, str] = {
    # All of /v1/auth/, the admin's login and the account pages' forms.
    "auth.ip": "60/m",
    # Failed logins only: of one account from anywhere, and of everyone together.
    "auth.account": "10/m",
    "auth.all": "1000/m",
    "status.ip": "600/m",
    # Model calls, not listings.
    "llm.user": "30/m",
    "publish.ip": "10/m",
    "telemetry.user": "60/m",
}
DEGRADED_HEADER = "X-RateLimit-Degraded"
RATE = re.compile(r"(\d+)/(\d*)([smhd])")
PERIODS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# An IPv6 host has a network of this size to itself.
IPV6_NETWORK_BITS = 64
# Numbers outlive their windows by this: the cache's clock is not ours.
SLACK_SECONDS = 5


class RateLimited(RefusedUntil):
    """More of one kind of request than its rate limit allows."""

    code = "rate_limited"


class AddressLimitMiddleware:
    """Counts requests of an address by their path and refuses those over a limit; no view runs for them.

    Every limited response, of these limits and of those that a view spends, says ``X-RateLimit-Degraded: 1``
    when it was counted in this process alone because the cache was away.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        refuse_unknown_names()
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        counting.watch()
        response = self._response(request)
        if counting.degraded():
            response.headers[DEGRADED_HEADER] = "1"
        return response

    def _response(self, request: HttpRequest) -> HttpResponseBase:
        if name := limit_of(request.method or "", request.path_info):
            try:
                _count_address(name, request, now=datetime.now(UTC))
            except RateLimited as refusal:
                return answer(request, refusal)
        return self.get_response(request)


def refuse_unknown_names() -> None:
    """Stops the start when ``RATE_LIMITS`` names a limit that does not exist, so that no misspelt one is believed."""
    if unknown := sorted(settings.RATE_LIMITS.keys() - DEFAULTS.keys()):
        known = ", ".join(sorted(DEFAULTS))
        raise ImproperlyConfigured(
            f"RATE_LIMITS: there is no limit named {', '.join(unknown)}; there are {known}."
        )


def count(name: KeyedLimit, *, key: str, now: datetime) -> None:
    """Spends one of a limit for whom ``key`` names; raises ``RateLimited`` when there was none left."""
    _spend(name, *parts_of(rate_of(name)), key=key, now=now)


def limit_of(method: str, path: str) -> AddressLimit | None:
    if path.startswith("/v1/auth/"):
        return "auth.ip"
    if path == "/v1/license/status":
        return "status.ip"
    if path.startswith("/v1/internal/"):
        return "publish.ip"
    if method == "POST" and path.startswith(("/admin/login", "/account/")):
        return "auth.ip"
    return None


def window_of(name: str, key: str, *, seconds: int, now: datetime) -> tuple[str, datetime]:
    """What a key's window of so many seconds is called in the cache, and when it ends."""
    hidden = blake2b(f"{name}:{key}".encode(), digest_size=16).digest()
    # Were all windows to begin together, everyone would be back at the same moment.
    offset = int.from_bytes(hidden[:4]) % seconds
    number = (int(now.timestamp()) + offset) // seconds
    ends = datetime.fromtimestamp((number + 1) * seconds - offset, UTC)
    return f"rate:{hidden.hex()}:{seconds}:{number}", ends


def _spend(name: str, allowed: int, seconds: int, *, key: str, now: datetime) -> None:
    window, ends = window_of(name, key, seconds=seconds, now=now)
    counters = cast("counting.ProcessCounters", caches["default"])
    if counters.count(window, seconds=seconds + SLACK_SECONDS) > allowed:
        raise RateLimited(now=now, until=ends)


def _count_address(name: AddressLimit, request: HttpRequest, *, now: datetime) -> None:
    address = address_of(request)
    allowed, seconds = parts_of(rate_of(name))
    _spend(name, allowed * _factor(address), seconds, key=_counted_as(address), now=now)


def _counted_as(address: str) -> str:
    if ":" not in address:
        return address
    return str(ip_network((address, IPV6_NETWORK_BITS), strict=False))


def _factor(address: str) -> int:
    """How many times the usual limits this address may use: what the smallest network around it says."""
    if not settings.RATE_LIMIT_NETWORKS:
        return 1
    client = ip_address(address)
    around = [network for network in settings.RATE_LIMIT_NETWORKS if client in network]
    if not around:
        return 1
    return int(settings.RATE_LIMIT_NETWORKS[max(around, key=lambda network: network.prefixlen)])


def rate_of(name: AddressLimit | KeyedLimit | FailureLimit) -> str:
    """What a limit allows: ``10/m``, ``5/2s``."""
    return str(settings.RATE_LIMITS.get(name) or DEFAULTS[name])


@lru_cache
def parts_of(rate: str) -> tuple[int, int]:
    """The count and the seconds of ``10/m`` or ``5/2s``."""
    match = RATE.fullmatch(rate)
    assert match, rate
    allowed, periods, unit = match.groups()
    return int(allowed), int(periods or 1) * PERIODS[unit]
