"""Classifies hosts of addresses: loopback and private ones. No name is resolved."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

# Suffixes that public DNS does not resolve, then public services that resolve to an address within the name.
PRIVATE_ENDINGS = (
    ".localhost", ".localdomain", ".local", ".internal", ".intranet", ".private", ".corp", ".home", ".lan",
    ".home.arpa", ".svc", ".cluster", ".consul",
    ".nip.io", ".sslip.io", ".xip.io", ".localtest.me", ".lvh.me",
)  # fmt: skip

LABEL = re.compile(r"(?!-)[\w-]{1,63}(?<!-)")


def is_host(host: str) -> bool:
    """Returns whether a text can be a host: an IP address, or a name whose last label is no number, as in browsers."""
    if _literal(host):
        return True
    labels = host.removesuffix(".").split(".")
    return all(map(LABEL.fullmatch, labels)) and not labels[-1].isdecimal()


def is_loopback(address: str) -> bool:
    """Returns whether the host of an address is this machine."""
    host = _host(address)
    literal = _literal(host)
    return literal.is_loopback if literal else host == "localhost"


def is_private(address: str) -> bool:
    """Returns whether the host of an address is this machine or unreachable from the public internet.

    A name without a dot belongs to a local network.
    """
    host = _host(address)
    if literal := _literal(host):
        return not literal.is_global
    return "." not in host or f".{host}".endswith(PRIVATE_ENDINGS)


def _host(address: str) -> str:
    return (urlsplit(address).hostname or "").removesuffix(".")


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    try:
        literal = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return (isinstance(literal, IPv6Address) and literal.ipv4_mapped) or literal
