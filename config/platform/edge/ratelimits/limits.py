"""Applies the rate limits by django-ratelimit: fixed windows whose start differs for every key.

The middleware applies limits ending in ``.ip`` by path, before any view; a view spends the others by ``count``. Limits
of failures are in ``failed_logins.py``. Keys are hashed, so no email address or other personal data reaches the cache.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django_ratelimit.core import get_usage

from config.platform.edge.ratelimits import cache
from config.platform.edge.ratelimits.table import AddressLimit, KeyedLimit, allowance, limit_of
from config.platform.problems.problem import RefusedUntil
from config.platform.problems.rendering import answer
from config.platform.request.client_address import address_of

DEGRADED_HEADER = "X-RateLimit-Degraded"


class RateLimited(RefusedUntil):
    """The caller has sent more requests of one kind than the rate limit allows."""

    code = "rate_limited"


class AddressLimitMiddleware:
    """Counts requests of an address by their path and refuses those over a limit before any view runs.

    ``X-RateLimit-Degraded: 1`` marks every response whose request was counted only in this process, here or by a
    view, because the cache was unavailable.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        cache.clear_degraded()
        name = limit_of(request.method or "", request.path_info)
        try:
            if name:
                address = address_of(request)
                allowed, seconds = allowance(name)
                allowed *= _factor(address)
                _spend(name, network_of(address), (allowed, seconds), now=datetime.now(UTC))
            response = self.get_response(request)
        except RateLimited as refusal:
            response = answer(request, refusal)
        if cache.is_degraded():
            response.headers[DEGRADED_HEADER] = "1"
        return response


class Window(NamedTuple):
    """A limit, its remaining count, and the seconds until it resets."""

    limit: int
    remaining: int
    seconds: int

    def headers(self) -> dict[str, str]:
        """Returns OpenAI's headers for it."""
        return {
            "x-ratelimit-limit-requests": str(self.limit),
            "x-ratelimit-remaining-requests": str(self.remaining),
            "x-ratelimit-reset-requests": f"{self.seconds}s",
        }


def count(name: KeyedLimit, *, key: str, now: datetime, times: int = 1) -> Window:
    """Counts one or more towards a limit; raises ``RateLimited`` when too few remain for ``key``."""
    for _ in range(times - 1):
        _spend(name, key, allowance(name), now=now)
    return _spend(name, key, allowance(name), now=now)


def peek(name: KeyedLimit, *, key: str, now: datetime) -> Window:
    """Returns or raises as :func:`count` would, without counting."""
    return _spend(name, key, allowance(name), now=now, is_dry=True)


def _spend(
    name: AddressLimit | KeyedLimit,
    key: str,
    allowed: tuple[int, int],
    *,
    now: datetime,
    is_dry: bool = False,
) -> Window:
    rate = "{}/{}s".format(*allowed)
    usage: dict[str, Any] = get_usage(
        None, group=name, key=lambda *_: key, rate=rate, increment=not is_dry
    )
    # The last second of time_left still belongs to this window.
    window = Window(
        allowed[0], max(0, usage["limit"] - usage["count"]), max(0, usage["time_left"]) + 1
    )
    if usage["should_limit"] or usage["count"] + is_dry > usage["limit"]:
        until = now.replace(microsecond=0) + timedelta(seconds=window.seconds)
        headers = window.headers() if name == "llm.user" else {}
        raise RateLimited(now=now, until=until, headers=headers).concerning(limit=name)
    return window


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """Returns the network that an address counts under: itself for IPv4, its /64 for IPv6."""
    client = ip_network(address)
    return str((client.supernet(new_prefix=64) if client.version == 6 else client).network_address)


def _factor(address: str) -> int:
    """Returns the factor of the smallest known network that contains an address, or 1."""
    networks = settings.RATE_LIMIT_NETWORKS
    client = ip_address(address) if networks else None
    around = [network for network in networks if client in network]
    return int(networks[max(around, key=lambda network: network.prefixlen)]) if around else 1
