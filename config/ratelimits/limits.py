"""Applies the rate limits by django-ratelimit: fixed windows that begin at another moment for every key.

A limit ending in ``.ip`` counts per client address (an IPv6 address counts as its /64) and is applied here by path,
before any view. A view spends the others by ``count``; limits of failures are in ``failed_logins.py``. Keys are
hashed, so no email address or other personal data reaches the cache.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django_ratelimit.core import get_usage

from config.api.handlers import answer
from config.api.problems import RefusedUntil
from config.middleware.client_address import address_of
from config.ratelimits import cache
from config.ratelimits.table import AddressLimit, KeyedLimit, allowance, limit_of

DEGRADED_HEADER = "X-RateLimit-Degraded"


class RateLimited(RefusedUntil):
    """More of one kind of request than its rate limit allows."""

    code = "rate_limited"


class AddressLimitMiddleware:
    """Counts requests of an address by their path and refuses those over a limit before any view runs.

    ``X-RateLimit-Degraded: 1`` marks every response whose request was counted in this process alone because the
    cache was away, by a view as well.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        cache.clear_degraded()
        name = limit_of(request.method or "", request.path_info)
        try:
            if name:
                allowed, seconds = allowance(name)
                allowed *= _factor(address_of(request))
                _spend(name, request, "ip", (allowed, seconds), now=datetime.now(UTC))
            response = self.get_response(request)
        except RateLimited as refusal:
            response = answer(request, refusal)
        if cache.is_degraded():
            response.headers[DEGRADED_HEADER] = "1"
        return response


def count(name: KeyedLimit, *, key: str, now: datetime) -> None:
    """Spends one of a limit; raises ``RateLimited`` when none was left for ``key``."""
    _spend(name, None, lambda *_: key, allowance(name), now=now)


def _spend(
    name: AddressLimit | KeyedLimit,
    request: HttpRequest | None,
    key: str | Callable[..., str],
    allowed: tuple[int, int],
    *,
    now: datetime,
) -> None:
    rate = "{}/{}s".format(*allowed)
    usage: dict[str, Any] = get_usage(request, group=name, key=key, rate=rate, increment=True)
    if usage["should_limit"]:
        # The last second that time_left counts to belongs to this window still.
        until = now.replace(microsecond=0) + timedelta(seconds=usage["time_left"] + 1)
        raise RateLimited(now=now, until=until)


def _factor(address: str) -> int:
    """Returns by how much the smallest known network around an address multiplies its limits."""
    networks = settings.RATE_LIMIT_NETWORKS
    client = ip_address(address)
    around = [network for network in networks if client in network]
    return int(networks[max(around, key=lambda network: network.prefixlen)]) if around else 1
