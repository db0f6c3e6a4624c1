"""The environment, read once at start by typed readers that fail loudly.

Every variable can be given as ``NAME_FILE`` instead: the name of a file that holds the value. Faults are
gathered and :func:`seal` reports all of them together, so that an operator mends them in one go; no report
repeats a value. What may be replaced while the service runs is read through :class:`Secret`.
"""

import logging
import os
import re
import time
from base64 import b64decode
from collections.abc import Callable
from email.utils import parseaddr
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from ssl import create_default_context
from typing import Any, NoReturn, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import dj_database_url
import dj_email_url
from cryptography.fernet import Fernet
from django.core.mail.message import sanitize_address
from django.utils.module_loading import import_string
from environs import EnvValidationError, FileAwareEnv, ValidationError

from config.ratelimits import servers
from config.ratelimits.table import DEFAULTS

Network = IPv4Network | IPv6Network
log = logging.getLogger(__name__)

RATE = re.compile(r"[1-9]\d*/([1-9]\d*)?[smhd]", re.ASCII)
# A scheme and a host, as a browser writes an origin; webviews have schemes of their own, or say that they have none.
ORIGIN = re.compile(r"null|file://|[a-z][a-z0-9+.-]*://[^/?#@*\s]+", re.IGNORECASE)
# A century.
MOST_DAYS = 36_500
# What no mail can do without. The hosts of an office have names of one word.
EMAIL = re.compile(r"[^\s@,;<>]+@[^\s@,;<>]+")
MINISIGN_KEY_BYTES = 2 + 8 + 32
# Where IPv6 has the addresses of IPv4.
MAPPED = IPv6Network("::ffff:0:0/96")
# A file that is replaced by being written over is empty for a moment.
REPLACED_WITHIN_NS = 1_000_000_000


class _Environment(FileAwareEnv):
    """The library's, which gathers all faults but that of a file that cannot be read."""

    def _get_value(self, env_key: str, default: Any) -> Any:
        try:
            return super()._get_value(env_key, default)
        except (OSError, ValueError):
            self._errors[env_key].append(f"{env_key}{self.file_suffix} must name a file of text.")
            return default


env = _Environment(eager=False, strip_whitespace=True)


class Secret:
    """A value that may live in a file which operators replace while the service runs.

    Calling it gives the value of now: the file is read again when it has changed. One that need not be there may be
    emptied as well. ``repr`` shows the name only.
    """

    def __init__(
        self,
        name: str,
        value: str,
        path: str | None = None,
        check: Callable[[str], None] | None = None,
        *,
        may_be_empty: bool = False,
    ) -> None:
        self.name = name
        self._check = check
        self._may_be_empty = may_be_empty
        self._value = value
        self._path = Path(path) if path else None
        self._stamp: tuple[int, int, int] | None = None
        self._stamp = self._look()

    def __call__(self) -> str:
        if self._path is not None and (stamp := self._look()) != self._stamp:
            self._read(self._path, stamp)
        return self._value

    def _read(self, path: Path, stamp: tuple[int, int, int] | None) -> None:
        """Takes what the file holds now; one that is not usable changes nothing and is told once."""
        value = self._usable(path)
        if value == "" and stamp and _is_fresh(stamp):
            # Perhaps it is just being written. If not, a later look takes it.
            return
        self._stamp = stamp
        if value is None:
            log.error("secret_file_not_usable", extra={"setting": self.name})
        else:
            self._value = value

    def _usable(self, path: Path) -> str | None:
        try:
            value = path.read_text().strip()
            if value or not self._may_be_empty:
                _not_empty(value)
                if self._check:
                    self._check(value)
        except (OSError, ValueError, ValidationError):
            return None
        return value

    def listed(self) -> list[str]:
        """The members of a comma-separated value, without empty ones."""
        return [part for each in self().split(",") if (part := each.strip())]

    def __repr__(self) -> str:
        return f"<Secret {self.name}>"

    def _look(self) -> tuple[int, int, int] | None:
        """What changes with the file; what it was while the file is away in mid-replacement."""
        if self._path is None:
            return None
        try:
            stat = self._path.stat()
        except OSError:
            return self._stamp
        return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _is_fresh(stamp: tuple[int, int, int]) -> bool:
    _, written_ns, _ = stamp
    return 0 <= time.time_ns() - written_ns < REPLACED_WITHIN_NS


def secret(name: str, *, default: Any = ..., check: Callable[[str], None] | None = None) -> Secret:
    """A secret by name; missing or empty is a fault unless there is a default."""
    validate = check or (None if default is not ... else _not_empty)
    value = env.str(name, default, validate=validate)
    path = os.environ.get(f"{name}_FILE")
    return Secret(name, value or "", path, check, may_be_empty=default is not ...)


def text(name: str, **kwargs: Any) -> str:
    """A required text that is not empty."""
    return env.str(name, validate=_not_empty, **kwargs) or ""


def positive(value: float) -> None:
    """A check that a number of seconds or days can be waited for."""
    if value <= 0:
        raise ValidationError("Must be more than 0.")


def days(value: int) -> None:
    """A check that so many days can be counted from today, either way."""
    if not 1 <= value <= MOST_DAYS:
        raise ValidationError(f"Must be 1 to {MOST_DAYS} days.")


def sender(value: str) -> None:
    """A check that mail can come from here: an email address, which a name may stand before."""
    _mailbox(value, "Must be an email address, or a name and the address in <>.")


def sentry_dsn(value: str) -> None:
    """A check that the library that reports errors can read where to, if that is given."""
    if not value:
        return
    # Loaded only where errors are reported.
    dsn = import_string("sentry_sdk.utils.Dsn")
    try:
        dsn(value)
    except ValueError:
        raise ValidationError("Must be https://<key>@<host>/<project>, or empty.") from None


def fernet_keys(value: str) -> None:
    """A check that there is a key, and that each can encrypt: found out now and not when somebody signs in."""
    keys = [part for each in value.split(",") if (part := each.strip())]
    try:
        usable = bool([Fernet(key) for key in keys])
    except ValueError:
        usable = False
    if not usable:
        raise ValidationError("Must be Fernet keys: 32 random bytes each, in base64url.")


def header_value(value: str) -> None:
    """A check that a secret is there and can stand in a header."""
    if not value or not (value.isascii() and value.isprintable()):
        raise ValidationError("Must be printable ASCII, and not empty.")


def certificates(value: str) -> None:
    """A check that a path, if there is one, leads to a file of PEM certificates."""
    try:
        usable = not value or bool(create_default_context(cafile=value).get_ca_certs())
    except OSError:
        usable = False
    if not usable:
        raise ValidationError("Must be the path of a file of PEM certificates of authorities.")


def redis_address(value: str) -> None:
    """A check that a cache address is one, or empty."""
    try:
        if value:
            servers.check(value)
    except ValueError:
        raise ValidationError(
            "Must be redis://…, rediss://…, unix://…, redis+sentinel://host,host/service or "
            "redis+cluster://host,host, or empty."
        ) from None


def address_or_empty(value: str) -> None:
    """A check that an address, if there is one, is an absolute http(s) one."""
    if value:
        _address(value)


def one_of(*choices: str) -> Callable[[str], None]:
    """A check that a value is one of a few words."""

    def check(value: str) -> None:
        if value not in choices:
            raise ValidationError(f"Must be one of: {', '.join(choices)}.")

    return check


def seal() -> None:
    """End of reading: one error that names everything missing or wrong, or nothing."""
    try:
        env.seal()
    except EnvValidationError as error:
        _refuse(error)


def _refuse(error: EnvValidationError) -> NoReturn:
    faults = cast("dict[str, list[str]]", error.error_messages)
    lines = [f"  {name}: {' '.join(map(str, faults[name]))}" for name in sorted(faults)]
    # A traceback would bury the names, and this is read by someone who is starting a server.
    raise SystemExit(
        "The service cannot start; its environment is incomplete:\n" + "\n".join(lines)
    )


def _split(value: str) -> SplitResult:
    try:
        return urlsplit(value)
    except ValueError:
        raise ValidationError("Not an address.") from None


def _not_empty(value: str) -> None:
    if not value:
        raise ValidationError("Must not be empty.")


def _parsed(name: str) -> Callable[[Callable[[str], Any]], Callable[[str], Any]]:
    """Registers ``env.<name>``: a parser whose refusals say what is expected and never what was given."""

    def register(parse: Callable[[str], Any]) -> Callable[[str], Any]:
        env.add_parser(name, parse)
        return parse

    return register


@_parsed("database_url")
def _database_url(value: str) -> dict[str, Any]:
    try:
        config = dj_database_url.parse(value)
    except Exception:  # noqa: BLE001 - the library's errors repeat the address with its password
        raise ValidationError("Not a database address.") from None
    if config.get("ENGINE") != "django.db.backends.postgresql":
        raise ValidationError("Must be postgresql://…; no other database is supported.")
    return dict(config)


@_parsed("address")
def _address(value: str) -> str:
    """An absolute http(s) address, without a trailing slash."""
    parts = _split(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValidationError("Must be an absolute http(s) address.")
    return value.rstrip("/")


@_parsed("words")
def _words(value: str) -> list[str]:
    return [part for each in value.split(",") if (part := each.strip())]


@_parsed("emails")
def _emails(value: str) -> list[str]:
    """``ops@example.com,…``: one email address or several."""
    emails: list[str] = _words(value)
    _not_empty("".join(emails))
    for each in emails:
        _mailbox(each, "Must be email addresses, separated by commas.")
    return emails


def _mailbox(value: str, otherwise: str) -> None:
    """As the one takes it that sends mail, and with a host."""
    try:
        sanitize_address(value, "utf-8")
    except ValueError:
        raise ValidationError(otherwise) from None
    if not EMAIL.fullmatch(parseaddr(value)[1]):
        raise ValidationError(otherwise)


@_parsed("origins")
def _origins(value: str) -> list[str]:
    """``https://app.example.com,tauri://localhost,…``: each by name, since ``*`` would be everybody."""
    origins: list[str] = _words(value)
    if not all(ORIGIN.fullmatch(each) for each in origins):
        raise ValidationError("Each origin is scheme://host, with a port or without, and no path.")
    return origins


@_parsed("networks")
def _networks(value: str) -> list[Network]:
    return [_network(each) for each in _words(value)]


@_parsed("network_factors")
def _network_factors(value: str) -> dict[Network, int]:
    """``203.0.113.0/24=20,…``: how many times the usual limits a known network may use."""
    factors = {}
    for each in _words(value):
        network, _, factor = each.partition("=")
        if not factor.isdecimal() or int(factor) < 1:
            raise ValidationError("Each network needs a whole factor, as in 203.0.113.0/24=20.")
        factors[_network(network)] = int(factor)
    return factors


@_parsed("rates")
def _rates(value: str) -> dict[str, str]:
    """``auth.ip=60/m,…``: a count per period of s, m, h or d by the name of a limit."""
    rates = {}
    for each in _words(value):
        name, _, rate = each.partition("=")
        if not RATE.fullmatch(rate.strip()):
            raise ValidationError("Each limit is name=count/period, as in auth.ip=60/m.")
        if name.strip() not in DEFAULTS:
            raise ValidationError(f"There are no other limits than {', '.join(sorted(DEFAULTS))}.")
        rates[name.strip()] = rate.strip()
    return rates


@_parsed("claims")
def _claims(value: str) -> dict[str, str]:
    """``repository=owner/project,ref=refs/heads/main,…``: what each claim of an identity token has to be."""
    claims = {}
    for each in _words(value):
        name, _, wanted = (part.strip() for part in each.partition("="))
        if not name or not wanted or name in claims:
            raise ValidationError("Each claim is name=value, once, as in ref=refs/heads/main.")
        claims[name] = wanted
    return claims


@_parsed("storage_url")
def _storage_url(value: str) -> dict[str, str]:
    """``file:///path`` or ``s3://bucket[/prefix]?endpoint=…&region=…``, as the parts that matter."""
    parts = _split(value)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return {"kind": "file", "path": unquote(parts.path)}
    options = dict(parse_qsl(parts.query))
    if parts.scheme != "s3" or not parts.netloc or options.keys() - {"endpoint", "region"}:
        raise ValidationError("Must be file:///path or s3://bucket[/prefix]?endpoint=…&region=….")
    return {"kind": "s3", "bucket": parts.netloc, "prefix": parts.path.strip("/"), **options}


@_parsed("cdn_purge")
def _cdn_purge(value: str) -> str:
    """``cloudfront:<distribution>`` or ``purge``; empty where nothing has to be purged."""
    if value and value != "purge" and not re.fullmatch(r"cloudfront:[A-Za-z0-9]+", value):
        raise ValidationError("Must be cloudfront:<distribution> or purge.")
    return value


@_parsed("minisign_key")
def _minisign_key(value: str) -> bytes | None:
    """The 42 bytes of a minisign public key: its line, its two-line file, or that file in base64; empty is None."""
    if not value:
        return None
    lines = value.splitlines()
    if len(lines) == 1:
        lines = _unwrapped(value)
    try:
        raw = b64decode(lines[-1], validate=True)
    except ValueError:
        raw = b""
    if len(raw) != MINISIGN_KEY_BYTES or not raw.startswith(b"Ed"):
        raise ValidationError("Not a minisign public key: give the .pub file or the key line.")
    return raw


def _unwrapped(value: str) -> list[str]:
    """The lines of a file that was given in base64, as Tauri writes a key; what is none stays as it is."""
    try:
        text = b64decode(value, validate=True).decode()
    except ValueError:
        return [value]
    return text.splitlines() if text.startswith("untrusted comment:") else [value]


def _network(value: str) -> Network:
    """A network; one of IPv4 that is written as IPv6 counts as IPv4, as addresses do."""
    try:
        network = ip_network(value.strip(), strict=False)
    except ValueError:
        raise ValidationError("Not an IP network.") from None
    if isinstance(network, IPv6Network) and network.subnet_of(MAPPED):
        packed = network.network_address.packed[-4:]
        return IPv4Network((packed, network.prefixlen - MAPPED.prefixlen))
    return network


@_parsed("email_url")
def _email_url(value: str) -> dict[str, Any]:
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
