"""Every rate limit: how often one address or one person may ask before being told to wait.

These guard against abuse, at the edge; what a call may cost is a cap and stands in ``usage/caps.py``. The windows
are django-ratelimit's: fixed, and begun at another moment for every key. It keeps a hash of a key and never the
key, so that no email address reaches the cache.

A limit ending in ``.ip`` counts per client address (an IPv6 address counts as its /64) and is applied here by
path, before any view. The others are spent by views:

    count("llm.user", key=str(user.pk), now=now)            # one of this call's limit, or RateLimited

What counts failures only is spent through ``config/attempts.py``.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django_ratelimit.core import get_usage

from config import counting
from config.api.handlers import answer
from config.api.problems import RefusedUntil
from config.middleware.client_address import address_of
from config.rates import DEFAULTS, AddressLimit, FailureLimit, KeyedLimit

DEGRADED_HEADER = "X-RateLimit-Degraded"
RATE = re.compile(r"(\d+)/(\d*)([smhd])")
PERIODS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class RateLimited(RefusedUntil):
    """More of one kind of request than its rate limit allows."""

    code = "rate_limited"


class AddressLimitMiddleware:
    """Counts requests of an address by their path and refuses those over a limit; no view runs for them.

    Every limited response, of these limits and of those that a view spends, says ``X-RateLimit-Degraded: 1``
    when it was counted in this process alone because the cache was away.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
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


def count(name: KeyedLimit, *, key: str, now: datetime) -> None:
    """Spends one of a limit for whom ``key`` names; raises ``RateLimited`` when there was none left."""
    # Already taken apart, which the library would do at each count.
    rate = parts_of(rate_of(name))
    usage = get_usage(None, group=name, key=lambda *_: key, rate=rate, increment=True)
    if usage and usage["should_limit"]:
        raise _refusal(usage, now)


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


def _count_address(name: AddressLimit, request: HttpRequest, *, now: datetime) -> None:
    allowed, seconds = parts_of(rate_of(name))
    rate = allowed * _factor(address_of(request)), seconds
    usage = get_usage(request, group=name, key=_counted_as, rate=rate, increment=True)
    if usage and usage["should_limit"]:
        raise _refusal(usage, now)


def _counted_as(_: str, request: HttpRequest) -> str:
    """What the library makes of an address: its network by ``RATELIMIT_IPV4_MASK`` and ``RATELIMIT_IPV6_MASK``."""
    return _network_of(address_of(request))


@lru_cache(maxsize=4096)
def _network_of(address: str) -> str:
    version = ip_address(address).version
    mask = settings.RATELIMIT_IPV6_MASK if version == 6 else settings.RATELIMIT_IPV4_MASK
    return str(ip_network(f"{address}/{mask}", strict=False).network_address)


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


def _refusal(usage: Mapping[str, Any], now: datetime) -> RateLimited:
    # The last second that time_left counts to belongs to this window still.
    until = now.replace(microsecond=0) + timedelta(seconds=usage["time_left"] + 1)
    return RateLimited(now=now, until=until)
