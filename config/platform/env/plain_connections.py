"""Servers elsewhere are reached by TLS, and a Redis by a password too, unless ``PLAIN_CONNECTIONS`` names them.

What goes over the wire are people's rows, hashes and the counters of rate limits. On this machine, sockets included,
nobody else listens. No name is looked up.
"""

import os
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from environs import ValidationError

from config.platform.edge.ratelimits import servers
from config.platform.env.hosts import is_loopback
from config.platform.env.reading import parser
from config.platform.env.values import words

DATABASE, CACHE = "database", "cache"
# Modes of PostgreSQL's client that do not go on in the clear.
ENCRYPTED = frozenset({"require", "verify-ca", "verify-full"})
ALLOW = "or, on a network that is yours alone, allow it: PLAIN_CONNECTIONS={}."


@parser
def plain_connections(value: str) -> frozenset[str]:
    """``database,cache``: those of the two that may be reached in the clear."""
    named = frozenset(words(value))
    if not named <= {DATABASE, CACHE}:
        raise ValidationError("Must be database, cache, both with a comma, or empty.")
    return named


def faults(
    databases: Mapping[str, Mapping[str, Any] | None], cache_url: str, *, allowed: Collection[str]
) -> dict[str, str]:
    """A sentence for each variable whose server is reached in the clear and may not be.

    ``databases``: Django's settings of each by its variable.
    """
    found = {}
    if DATABASE not in allowed:
        advice = f"This server is reached without TLS. Add ?sslmode=verify-full, {ALLOW.format(DATABASE)}"
        found = {name: advice for name, each in databases.items() if each and _is_plain(each)}
    if CACHE not in allowed and cache_url and (lack := _lack(cache_url)):
        found["CACHE_URL"] = f"This server is reached without {lack}, {ALLOW.format(CACHE)}"
    return found


def _is_plain(database: Mapping[str, Any]) -> bool:
    options = database.get("OPTIONS", {})
    mode = options.get("sslmode") or os.environ.get("PGSSLMODE", "")
    if mode in ENCRYPTED or options.get("gssencmode") == "require":
        return False
    hosts = str(options.get("hostaddr") or database.get("HOST") or os.environ.get("PGHOST", ""))
    return not all(_is_here(host) for host in hosts.split(","))


def _lack(address: str) -> str:
    """Names what the way to a Redis lacks; "" on this machine, or where it lacks nothing."""
    scheme = address.partition(":")[0].lower()
    if scheme == "unix":
        return ""
    if scheme in servers.PORTS:
        user, nodes, _ = servers.parsed(address)
        hosts, has_password = [host for host, _ in nodes], "password" in user
    else:
        parts = urlsplit(address)
        given = parse_qs(parts.query)
        hosts = [parts.hostname or ""]
        has_password = bool(parts.password) or not given.keys().isdisjoint(
            {"password", "ssl_certfile"}
        )
    if all(map(_is_here, hosts)):
        return ""
    if scheme != "rediss":
        # The client of a sentinel set or a cluster knows no TLS.
        single = "TLS: use rediss://"
        return single if scheme == "redis" else "TLS, which only a single server (rediss://) has"
    return "" if has_password else "a password: write rediss://:password@host"


def _is_here(host: str) -> bool:
    """Returns whether a host is this machine: none, a socket's folder or a loopback address."""
    if not host or host.startswith(("/", "@")):
        return True
    return is_loopback(f"//[{host}]" if ":" in host else f"//{host}")
