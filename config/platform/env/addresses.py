"""Parses the settings that are addresses: of the service, its servers and its networks."""

import os
import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from ssl import create_default_context
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

import dj_database_url
from environs import ValidationError

from config.platform.edge.ratelimits import servers
from config.platform.env import plain_connections
from config.platform.env.hosts import is_host, is_loopback
from config.platform.env.parameters import ESCAPED, database_parameters, parameters
from config.platform.env.reading import Environment, parser, plain
from config.platform.env.values import pairs, words
from config.platform.observability.syslog import PORTS, Receiver

Network = IPv4Network | IPv6Network
WEB = {"http", "https"}
# A scheme and a host, as a browser writes an origin. Webviews have schemes of their own. "null" is refused: every
# sandboxed frame of any site sends it.
ORIGIN = re.compile(r"file://|[a-z][a-z0-9+.-]*://[^/?#@*\s]+", re.IGNORECASE)
# IPv4 addresses mapped into IPv6.
MAPPED = IPv6Network("::ffff:0:0/96")

FOLDER = re.compile(r"file:///[^?#]*", re.IGNORECASE)
BUCKET = re.compile(r"[A-Za-z0-9._-]+")
# The default port of each scheme of mail server.
SUBMISSION_PORT = 587
MAIL = {"smtp": 25, "smtps": 465, "submission": SUBMISSION_PORT, "submit": SUBMISSION_PORT}
STARTTLS_PORTS = {25, SUBMISSION_PORT}
FILES_OF_MAIL = "django.core.mail.backends.filebased.EmailBackend"
ON, OFF = {"1", "y", "yes", "t", "true", "on"}, {"", "0", "n", "no", "f", "false", "off"}
SECONDS = re.compile(r"[1-9]\d{0,3}", re.ASCII)


def _split(value: str) -> SplitResult:
    """Splits an address; refuses line breaks, which the library would drop silently."""
    try:
        parts = urlsplit(value)
    except ValueError:
        parts = None
    if parts is None or not value.isprintable():
        raise ValidationError(f"Not an address. {ESCAPED}")
    return parts


def _is_server(parts: SplitResult) -> bool:
    """Returns whether an address has a valid host and port, and no space or fragment."""
    try:
        port = parts.port
    except ValueError:
        port = 0
    whole = urlunsplit(parts)
    return (
        bool(parts.hostname)
        and is_host(parts.hostname or "")
        and port != 0
        and not {"#", " "} & {*whole}
    )


@parser
def host(value: str) -> str:
    """Parses the address or name to listen on; removes the brackets of an IPv6 address."""
    bare = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    if bare and not is_host(bare):
        raise ValidationError(
            "Must be an IP address or a name, without scheme and port: 127.0.0.1, 0.0.0.0, ::1."
        )
    return bare


@parser
def allowed_hosts(value: str) -> list[str]:
    """Parses ``shell.example.com,.example.com,[::1]``: names as a browser sends them, or ``*`` for any."""
    hosts: list[str] = words(value)
    for each in hosts:
        bare = each[1:-1] if each.startswith("[") else each.removeprefix(".")
        if each != "*" and not (
            each.isascii() and is_host(bare) and (":" in bare) == ("[" in each)
        ):
            raise ValidationError(
                "Must be names without scheme, port and path, IPv6 addresses in [], and other letters as xn--…."
            )
    return hosts


@parser
def address(value: str) -> str:
    """Parses an absolute http(s) address and removes a trailing slash. The scheme is case-insensitive."""
    parts = _web(value)
    parameters(parts.query)
    return urlunsplit(parts).rstrip("/")


@parser
def own_address(value: str) -> str:
    """Parses the address of this service, whose host must be written as browsers send it."""
    parts = _split(address(value))
    if not (parts.hostname or "").isascii() or parts.username is not None:
        raise ValidationError(
            "Must be https://host, with other letters of the host as xn--…, and no user before it."
        )
    return urlunsplit(parts)


def _web(value: str) -> SplitResult:
    parts = _split(value)
    if parts.scheme not in WEB or not _is_server(parts) or parts.path.startswith("//"):
        raise ValidationError(
            "Must be an absolute http(s) address, such as https://host or https://host/path."
        )
    _refuse_insecure(value)
    return parts


def address_or_empty(value: str) -> None:
    """Checks that an address is empty or an absolute http(s) address."""
    if value:
        address(value)


def webhook_or_empty(value: str) -> None:
    """Checks that a webhook is empty or an http(s) address, which may have any parameters, such as a key."""
    if value:
        _web(value)


def _refuse_insecure(address: str) -> None:
    """Refuses unencrypted http, except to this machine."""
    if _split(address).scheme == "http" and not is_loopback(address):
        raise ValidationError("Must be https; http is for loopback addresses.")


@parser
def origins(value: str) -> list[str]:
    """Parses ``https://app.example.com,tauri://localhost,…``; refuses ``*`` and ``null``, which match every site."""
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
    """Parses a network; an IPv4 network mapped into IPv6 becomes IPv4, as client addresses do."""
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
            raise ValidationError(
                "Each network needs a whole-number factor, such as 203.0.113.0/24=20."
            )
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
    database_parameters(parts.query)
    return {**config, **_options(parts.query, config.get("OPTIONS", {}))}


def _lists_hosts(query: str) -> bool:
    return any(
        "," in value for name, value in parse_qsl(query) if name in {"host", "hostaddr", "port"}
    )


def _options(query: str, parsed: Mapping[str, Any]) -> dict[str, Any]:
    """Joins every ``options`` and ``currentSchema`` into one driver option; the library would keep only one of them."""
    forms = {"options": "{}", "currentSchema": "-c search_path={}"}
    options = [forms[name].format(value) for name, value in parse_qsl(query) if name in forms]
    return {"OPTIONS": {**parsed, "options": " ".join(options)}} if options else {}


@parser
def replica_url(value: str) -> dict[str, Any] | None:
    return dict(database_url(value)) if value else None


def owner_address(local: Path | None = None) -> str:
    """Returns ``DATABASE_OWNER_URL``, or an empty text. Only commands that change the schema call this.

    ``local``: the environment file of a local run. It is not read where ``DATABASE_URL`` is set: the owner that it
    names does not own the tables of another database.
    """
    reader = Environment()
    if local is not None and {"DATABASE_URL", "DATABASE_URL_FILE"}.isdisjoint(os.environ):
        reader.read_env(local, recurse=False)
    reader.add_parser("plain", plain)
    value: str = reader.plain("DATABASE_OWNER_URL", "") or ""
    allowed: str = reader.plain("PLAIN_CONNECTIONS", "") or ""
    try:
        faults: list[Any] = reader.faults().get("DATABASE_OWNER_URL", [])
        if value:
            owner = {"DATABASE_OWNER_URL": database_url(value)}
            known = plain_connections.plain_connections(allowed)
            faults += plain_connections.faults(owner, "", allowed=known).values()
    except ValidationError as error:
        faults = [*error.messages]
    if faults:
        raise SystemExit(f"DATABASE_OWNER_URL: {' '.join(map(str, faults))}")
    return value


@parser
def redis_address(value: str) -> str:
    """Parses the address of a Redis server, which may be empty. The scheme is case-insensitive."""
    scheme, colon, rest = value.partition(":")
    normal = f"{scheme.lower()}{colon}{rest}"
    try:
        if value:
            servers.check(normal)
    except ValueError:
        raise ValidationError(
            "Must be redis://host:port/number, rediss://…, unix:///path, redis+sentinel://host,host/service or "
            "redis+cluster://host,host, or empty. After `?` there may be options of the client for that scheme "
            f"(db, ssl_ca_certs, ssl_cert_reqs, …), and for sentinels and clusters none. {ESCAPED}"
        ) from None
    return normal


@parser
def storage_url(value: str) -> dict[str, str]:
    """Parses ``file:///path`` or ``s3://bucket[/prefix]?endpoint=…&region=…`` into its parts."""
    parts = _split(value)
    if parts.scheme == "file" and FOLDER.fullmatch(value):
        return {"kind": "file", "path": unquote(parts.path)}
    options = parameters(parts.query, "endpoint", "region")
    if parts.scheme != "s3" or not BUCKET.fullmatch(parts.netloc) or "#" in value:
        raise ValidationError(
            "Must be file:///path or s3://bucket[/prefix]?endpoint=…&region=…; credentials are AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY."
        )
    if endpoint := options.get("endpoint"):
        address(endpoint)
    return {"kind": "s3", "bucket": parts.netloc, "prefix": parts.path.strip("/"), **options}


@parser
def syslog_url(value: str) -> Receiver | None:
    """Parses ``tls://``, ``tcp://`` or ``udp://host``, with an optional port, or ``unix:///path``; empty is None."""
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
    """Checks the address of error reports as the library that sends them does; it may be empty."""
    if not value:
        return
    parts = _split(value)
    project = parts.path.rpartition("/")[2]
    if not (parts.scheme in WEB and parts.username and parts.hostname and project.isdecimal()):
        raise ValidationError("Must be https://<key>@<host>/<project>, or empty.")
    _refuse_insecure(value)


@parser
def email_url(value: str) -> dict[str, Any]:
    """Parses ``smtp://…``, ``smtps://…``, ``submission://…`` or ``file:///path`` into Django's EMAIL_* settings."""
    parts = _split(value)
    if parts.scheme == "file" and FOLDER.fullmatch(value):
        return {"EMAIL_BACKEND": FILES_OF_MAIL, "EMAIL_FILE_PATH": unquote(parts.path)}
    is_server = _is_server(parts) or value.lower() in {"smtp:", "smtp://"}
    # A path can only be the rest of a password with an unescaped slash.
    if parts.scheme not in MAIL or not is_server or parts.path.strip("/"):
        raise ValidationError(
            "Must be smtp://user:password@host:port, smtps://…, submission://… or file:///path. "
            f"{ESCAPED}"
        )
    if parts.scheme == "smtps" and parts.port in STARTTLS_PORTS:
        raise ValidationError(
            "smtps:// is TLS from the first byte, at port 465; STARTTLS at 587 is submission://."
        )
    return _mail_server(parts)


def _mail_server(parts: SplitResult) -> dict[str, Any]:
    """Returns the settings of a mail server. ``smtps`` is implicit TLS (RFC 8314), ``submission`` is STARTTLS."""
    options = {
        name: value.lower()
        for name, value in parameters(parts.query, "ssl", "tls", "timeout").items()
    }
    switches, seconds = (
        {options.get("ssl", ""), options.get("tls", "")},
        options.get("timeout", "20"),
    )
    if not switches <= ON | OFF or not SECONDS.fullmatch(seconds):
        raise ValidationError(
            "ssl=true is TLS from the first byte, tls=true STARTTLS; timeout is a number of seconds."
        )
    is_implicit = parts.scheme == "smtps" or options.get("ssl") in ON
    is_upgraded = not is_implicit and (
        MAIL[parts.scheme] == SUBMISSION_PORT or options.get("tls") in ON
    )
    return {
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "EMAIL_HOST": parts.hostname or "localhost",
        "EMAIL_PORT": parts.port or (MAIL["smtps"] if is_implicit else MAIL[parts.scheme]),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": is_implicit,
        "EMAIL_USE_TLS": is_upgraded,
        "EMAIL_TIMEOUT": int(seconds),
    }


def certificates(value: str) -> None:
    """Checks that a path is empty or names a file of PEM certificates."""
    try:
        usable = not value or bool(create_default_context(cafile=value).get_ca_certs())
    except OSError:
        usable = False
    if not usable:
        raise ValidationError("Must be the path of a file of PEM certificates of authorities.")
