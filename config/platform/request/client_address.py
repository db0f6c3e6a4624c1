"""Finds the address of the client, which rate limits count and the audit log records.

``X-Forwarded-*`` and ``Forwarded`` are claims. The service trusts them only if the peer, the other end of the
connection, is in ``TRUSTED_PROXIES``. From other peers they are removed, so that later code may trust them. A trusted
proxy must set ``X-Forwarded-Proto`` itself and append the peer's address to ``X-Forwarded-For``, as nginx and cloud
load balancers do.
"""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from django.conf import settings
from django.http import HttpRequest
from rest_framework.request import Request

Address = IPv4Address | IPv6Address

# No header can carry this name into META: those begin with HTTP_.
META_KEY = "config.platform.request.client_address"
# A peer on a unix socket has no address; it counts as 127.0.0.1.
LOOPBACK = ip_address("127.0.0.1")
# 192.0.2.1:443 and [2001:db8::1]:443, as some balancers write them, and [2001:db8::1].
WITH_PORT = re.compile(r"\[(?P<six>[^\]]+)\](?::\d{1,5})?|(?P<four>[\d.]+):\d{1,5}")
CLAIM = re.compile(r"HTTP_(X_)?FORWARDED")


def find(request: HttpRequest) -> None:
    """Finds the client's address, and removes a proxy's headers from requests of other peers."""
    client = peer = _peer(request.META.get("REMOTE_ADDR") or "")
    if _trusted(peer):
        # The client is the rightmost address that is no trusted proxy; anybody may have written the entries to its
        # left. A malformed entry ends the search at the last good one.
        for entry in reversed(request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")):
            address = _parsed(entry)
            if address is None:
                break
            client = address
            if not _trusted(client):
                break
        if scheme := request.META.get("HTTP_X_FORWARDED_PROTO"):
            # Schemes are case-insensitive (RFC 3986), but Django compares them exactly.
            request.META["HTTP_X_FORWARDED_PROTO"] = scheme.lower()
    elif claims := [name for name in request.META if "FORWARDED" in name and CLAIM.match(name)]:
        for name in claims:
            del request.META[name]
        # Django's cached copy of the headers may still have the claims.
        request.__dict__.pop("headers", None)
    request.META[META_KEY] = str(client)


def address_of(request: HttpRequest | Request) -> str:
    """Returns the client's address in its shortest form, or the peer's if ``find`` has not run."""
    known: str | None = request.META.get(META_KEY)
    return known or str(_peer(request.META.get("REMOTE_ADDR") or ""))


# The kernel reports peers, so clients cannot fill the cache with invented ones.
@lru_cache(maxsize=1024)
def _peer(remote_address: str) -> Address:
    return _parsed(remote_address) or LOOPBACK


def _trusted(address: Address) -> bool:
    return any(address in network for network in settings.TRUSTED_PROXIES)


def _parsed(entry: str) -> Address | None:
    """Parses one address, without port and zone; an IPv4 address written as IPv6 counts as IPv4."""
    text = entry.strip()
    if match := WITH_PORT.fullmatch(text):
        text = match["six"] or match["four"]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address
