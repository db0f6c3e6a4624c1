"""Requires TLS to remote servers, and a password for a remote Redis, unless ``PLAIN_CONNECTIONS`` names them.

These connections carry personal data, password hashes and the counters of rate limits. Connections within this machine,
Unix sockets included, are exempt. No name is resolved.
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
# Modes of PostgreSQL's client that never fall back to plain text.
ENCRYPTED = frozenset({"require", "verify-ca", "verify-full"})
ALLOW = "or, on a network that is yours alone, allow it: PLAIN_CONNECTIONS={}."


@parser
def plain_connections(value: str) -> frozenset[str]:
    """Parses ``database,cache``: the servers that may be reached without TLS."""
    named = frozenset(words(value))
    if not named <= {DATABASE, CACHE}:
        raise ValidationError("Must be database, cache, both with a comma, or empty.")
    return named


def faults(
    databases: Mapping[str, Mapping[str, Any] | None], cache_url: str, *, allowed: Collection[str]
) -> dict[str, str]:
    """Returns a sentence for each variable whose server must not be reached without TLS.

    ``databases``: Django's settings of each database, by variable.
    """
    plain = {}
    if DATABASE not in allowed:
        advice = f"This server is reached without TLS. Add ?sslmode=verify-full, {ALLOW.format(DATABASE)}"
        plain = {name: advice for name, each in databases.items() if each and _is_plain(each)}
    if CACHE not in allowed and cache_url and (lack := _lack(cache_url)):
        plain["CACHE_URL"] = f"This server is reached without {lack}, {ALLOW.format(CACHE)}"
    return plain


def _is_plain(database: Mapping[str, Any]) -> bool:
    options = database.get("OPTIONS", {})
    mode = options.get("sslmode") or os.environ.get("PGSSLMODE", "")
    if mode in ENCRYPTED or options.get("gssencmode") == "require":
        return False
    hosts = str(options.get("hostaddr") or database.get("HOST") or os.environ.get("PGHOST", ""))
    return not all(_is_here(host) for host in hosts.split(","))


def _lack(address: str) -> str:
    """Names what the connection to a Redis lacks; "" on this machine, or where it lacks nothing."""
    scheme = address.partition(":")[0].lower()
    if scheme == "unix":
        return ""
    if scheme in servers.PORTS:
        user, nodes, _ = servers.parsed(address)
        hosts, has_password = [host for host, _ in nodes], "password" in user
    else:
        parts = urlsplit(address)
        options = parse_qs(parts.query)
        hosts = [parts.hostname or ""]
        has_password = bool(parts.password) or not options.keys().isdisjoint(
            {"password", "ssl_certfile"}
        )
    if all(map(_is_here, hosts)):
        return ""
    if scheme != "rediss":
        # The client of a sentinel set or a cluster does not support TLS.
        single = "TLS: use rediss://"
        return single if scheme == "redis" else "TLS, which only a single server (rediss://) has"
    return "" if has_password else "a password: write rediss://:password@host"


def _is_here(host: str) -> bool:
    """Returns whether a host is this machine: empty, a socket's folder or a loopback address."""
    if not host or host.startswith(("/", "@")):
        return True
    return is_loopback(f"//[{host}]" if ":" in host else f"//{host}")
