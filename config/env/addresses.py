"""Settings that are addresses: of the service, its servers and its networks."""

import os
import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from ssl import create_default_context
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import dj_database_url
import dj_email_url
from environs import FileAwareEnv, ValidationError

from config.env import plain_connections
from config.env.reading import parser
from config.env.values import pairs, words
from config.hosts import is_loopback
from config.observability.syslog import PORTS, Receiver
from config.ratelimits import servers

Network = IPv4Network | IPv6Network
WEB = {"http", "https"}
# A scheme and a host, as a browser writes an origin. Webviews have other schemes. Every sandboxed frame of any site is
# "null", so that is none.
ORIGIN = re.compile(r"file://|[a-z][a-z0-9+.-]*://[^/?#@*\s]+", re.IGNORECASE)
# The IPv6 network of IPv4 addresses.
MAPPED = IPv6Network("::ffff:0:0/96")


def _split(value: str) -> SplitResult:
    try:
        return urlsplit(value)
    except ValueError:
        raise ValidationError("Not an address.") from None


@parser
def address(value: str) -> str:
    """An absolute http(s) address, without a trailing slash."""
    parts = _split(value)
    if parts.scheme not in WEB or not parts.hostname:
        raise ValidationError("Must be an absolute http(s) address.")
    _refuse_insecure(value)
    return value.rstrip("/")


def address_or_empty(value: str) -> None:
    """Checks that an address, if there is one, is an absolute http(s) address."""
    if value:
        address(value)


def _refuse_insecure(address: str) -> None:
    """Refuses http, which anybody on the way reads and changes, for all but this machine."""
    if _split(address).scheme == "http" and not is_loopback(address):
        raise ValidationError("Must be https; http is for loopback addresses.")


@parser
def origins(value: str) -> list[str]:
    """Parses ``https://app.example.com,tauri://localhost,…``; refuses ``*`` and ``null``, which are every site."""
    origins: list[str] = words(value)
    if not all(ORIGIN.fullmatch(each) for each in origins):
        raise ValidationError(
            "Each origin is scheme://host, with a port or without, and no path. `null` is every sandboxed page."
        )
    return origins


@parser
def networks(value: str) -> list[Network]:
    return [parsed_network(each) for each in words(value)]


def parsed_network(value: str) -> Network:
    """Parses a network; an IPv4 network that is written as IPv6 counts as IPv4, as addresses do."""
    try:
        network = ip_network(value.strip(), strict=False)
    except ValueError:
        raise ValidationError("Not an IP network.") from None
    if isinstance(network, IPv6Network) and network.subnet_of(MAPPED):
        packed = network.network_address.packed[-4:]
        return IPv4Network((packed, network.prefixlen - MAPPED.prefixlen))
    return network


@parser
def network_factors(value: str) -> dict[Network, int]:
    """Parses ``203.0.113.0/24=20,…``: the factor of each known network's rate limits."""
    factors = {}
    for network, factor in pairs(value):
        if not factor.isdecimal() or int(factor) < 1:
            raise ValidationError("Each network needs a whole factor, as in 203.0.113.0/24=20.")
        factors[parsed_network(network)] = int(factor)
    return factors


@parser
def database_url(value: str) -> dict[str, Any]:
    parts = _split(value)
    if "," in parts.netloc.rpartition("@")[2] or _lists_hosts(parts.query):
        raise ValidationError(
            "Must name one host: the primary's, or of what leads to it, such as a proxy or a virtual address."
        )
    try:
        config = dj_database_url.parse(value)
    except Exception:  # noqa: BLE001 - the library's errors repeat the address with its password
        raise ValidationError("Not a database address.") from None
    if config.get("ENGINE") != "django.db.backends.postgresql":
        raise ValidationError("Must be postgresql://…; no other database is supported.")
    return {**config, **_options(parts.query, config.get("OPTIONS", {}))}


def _lists_hosts(query: str) -> bool:
    return any(
        "," in value for name, value in parse_qsl(query) if name in {"host", "hostaddr", "port"}
    )


def _options(query: str, parsed: Mapping[str, Any]) -> dict[str, Any]:
    """The driver's options with all ``options`` and ``currentSchema`` together; the library keeps one of them."""
    forms = {"options": "{}", "currentSchema": "-c search_path={}"}
    given = [forms[name].format(value) for name, value in parse_qsl(query) if name in forms]
    return {"OPTIONS": {**parsed, "options": " ".join(given)}} if given else {}


@parser
def replica_url(value: str) -> dict[str, Any] | None:
    return dict(database_url(value)) if value else None


def owner_address(local: Path | None = None) -> str:
    """``DATABASE_OWNER_URL``; empty without one. Only what changes the schema reads it, and is given it.

    ``local``: the file of a local run. Its owner does not own the tables of another ``DATABASE_URL``.
    """
    reader = FileAwareEnv(strip_whitespace=True)
    if local is not None and {"DATABASE_URL", "DATABASE_URL_FILE"}.isdisjoint(os.environ):
        reader.read_env(local, recurse=False)
    wrong: Mapping[str, str] = {}
    try:
        value = reader.str("DATABASE_OWNER_URL", "")
        if value:
            allowed = plain_connections.plain_connections(reader.str("PLAIN_CONNECTIONS", ""))
            owner = {"DATABASE_OWNER_URL": database_url(value)}
            wrong = plain_connections.faults(owner, "", allowed=allowed)
    except ValidationError as fault:
        raise SystemExit(f"DATABASE_OWNER_URL: {fault.messages[0]}") from None
    except (OSError, ValueError):
        raise SystemExit(
            "DATABASE_OWNER_URL must be postgresql://…, or a file with that."
        ) from None
    for name, sentence in wrong.items():
        raise SystemExit(f"{name}: {sentence}")
    return value


def redis_address(value: str) -> None:
    """Checks the address of a Redis, which may be empty."""
    try:
        if value:
            servers.check(value)
    except ValueError:
        raise ValidationError(
            "Must be redis://…, rediss://…, unix://…, redis+sentinel://host,host/service or "
            "redis+cluster://host,host, or empty."
        ) from None


@parser
def storage_url(value: str) -> dict[str, str]:
    """``file:///path`` or ``s3://bucket[/prefix]?endpoint=…&region=…``, as the parts that matter."""
    parts = _split(value)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return {"kind": "file", "path": unquote(parts.path)}
    options = dict(parse_qsl(parts.query))
    if parts.scheme != "s3" or not parts.netloc or options.keys() - {"endpoint", "region"}:
        raise ValidationError("Must be file:///path or s3://bucket[/prefix]?endpoint=…&region=….")
    if endpoint := options.get("endpoint"):
        address(endpoint)
    return {"kind": "s3", "bucket": parts.netloc, "prefix": parts.path.strip("/"), **options}


@parser
def syslog_url(value: str) -> Receiver | None:
    """``tls://host``, ``tcp://host`` or ``udp://host``, with a port or without, or ``unix:///path``; empty is None."""
    if not value:
        return None
    parts = _split(value)
    try:
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        port = 0
    if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
        return Receiver("unix", path=unquote(parts.path))
    extra = parts.username or parts.password or parts.path.strip("/") or parts.query
    if not (port and parts.hostname) or parts.fragment or extra:
        raise ValidationError(
            "Must be tls://host, tcp://host or udp://host, with a port or without, or unix:///path."
        )
    return Receiver(parts.scheme, parts.hostname, port)


def sentry_dsn(value: str) -> None:
    """Checks the address of error reports as the library does that sends them; it may be empty."""
    if not value:
        return
    parts = _split(value)
    project = parts.path.rpartition("/")[2]
    if not (parts.scheme in WEB and parts.username and parts.hostname and project.isdecimal()):
        raise ValidationError("Must be https://<key>@<host>/<project>, or empty.")
    _refuse_insecure(value)


@parser
def email_url(value: str) -> dict[str, Any]:
    """``smtp://…``, ``submission://…`` or ``file:///path`` as Django's EMAIL_* settings."""
    try:
        config = dict(dj_email_url.parse(value))
    except Exception:  # noqa: BLE001 - the library's errors repeat the address with its password
        raise ValidationError("Not a mail address of the form smtp://… or file:///….") from None
    if "EMAIL_BACKEND" not in config:
        raise ValidationError("Must be smtp://…, submission://… or file:///….")
    # The library drops the first slash of a path.
    config["EMAIL_FILE_PATH"] = "/" + unquote(config["EMAIL_FILE_PATH"]).lstrip("/")
    return config


def certificates(value: str) -> None:
    """Checks that a path, if there is one, leads to a file of PEM certificates."""
    try:
        usable = not value or bool(create_default_context(cafile=value).get_ca_certs())
    except OSError:
        usable = False
    if not usable:
        raise ValidationError("Must be the path of a file of PEM certificates of authorities.")
