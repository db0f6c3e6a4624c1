"""The environment, read once at start by typed readers that fail loudly.

Every variable can be given as ``NAME_FILE`` instead: the name of a file that holds the value. :func:`seal` reports all
faults together, so that an operator mends them in one go; no report repeats a value. A :class:`Secret` may be replaced
while the service runs.
"""

import datetime as dt
import logging
import os
import re
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from email.utils import parseaddr
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from ssl import create_default_context
from typing import Any, TypeVar, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import dj_database_url
import dj_email_url
from cryptography.fernet import Fernet
from django.core.mail.message import sanitize_address
from django.utils.module_loading import import_string
from environs import EnvValidationError, FileAwareEnv, ValidationError, validate

from config.hosts import is_loopback
from config.observability.syslog import PORTS, Receiver
from config.ratelimits import servers
from config.ratelimits.table import DEFAULTS

Network = IPv4Network | IPv6Network
Parse = TypeVar("Parse", bound=Callable[..., Any])
log = logging.getLogger(__name__)

RATE = re.compile(r"[1-9]\d*/([1-9]\d*)?[smhd]", re.ASCII)
# A scheme and a host, as a browser writes an origin. Webviews have other schemes. Every sandboxed frame of any site is
# "null", so that is none.
ORIGIN = re.compile(r"file://|[a-z][a-z0-9+.-]*://[^/?#@*\s]+", re.IGNORECASE)
# A host may be one word, as in an office.
EMAIL = re.compile(r"[^\s@,;<>]+@[^\s@,;<>]+")
TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)
MINISIGN_KEY_BYTES = 2 + 8 + 32
# The IPv6 network of IPv4 addresses.
MAPPED = IPv6Network("::ffff:0:0/96")
# A file that is replaced by being written over is empty for a moment.
REPLACED_WITHIN_NS = 1_000_000_000

POSITIVE = validate.Range(min=0, min_inclusive=False)
# A century at most.
DAYS = validate.Range(min=1, max=36_500)
# As long as Django's own keys, and as 24 random bytes in base64.
KEY_LENGTH, SECRET_LENGTH = 50, 32
LONG_KEY = validate.Length(min=KEY_LENGTH, error=f"Must have at least {KEY_LENGTH} characters.")
NOT_EMPTY = validate.Length(min=1, error="Must not be empty.")
LABEL_LENGTH = 40
HEADER_VALUE = validate.Regexp(r"[ -~]+\Z", error="Must be printable ASCII, and not empty.")
CDN_PURGE_FORM = validate.Regexp(
    r"(|purge|cloudfront:[A-Za-z0-9]+)\Z", error="Must be cloudfront:<distribution> or purge."
)


class _Environment:
    """The library's reader, which reports a file that cannot be read with all other faults."""

    def __init__(self) -> None:
        self._reader = FileAwareEnv(eager=False, strip_whitespace=True)
        self.add_parser, self.read_env = self._reader.add_parser, self._reader.read_env
        self._faults: dict[str, list[str]] = {}

    def __getattr__(self, parser: str) -> Callable[..., Any]:
        def read(name: str, *args: Any, **kwargs: Any) -> Any:
            try:
                return getattr(self._reader, parser)(name, *args, **kwargs)
            except (OSError, ValueError):
                self._faults[name] = [f"{name}_FILE must name a file of text."]

        return read

    def faults(self) -> dict[str, list[str]]:
        """Ends the reading; returns what is wrong with each variable."""
        try:
            self._reader.seal()
        except EnvValidationError as error:
            self._faults |= cast("dict[str, list[str]]", error.error_messages)
        return self._faults


env = _Environment()


class Secret:
    """A value that may live in a file which operators replace while the service runs.

    Calling it returns the current value; a changed file is read again. An optional secret may be emptied as well.
    ``repr`` shows the name only.
    """

    def __init__(
        self,
        name: str,
        value: str,
        path: str | None = None,
        check: Callable[[str], Any] | None = None,
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
        """Takes the value of the file; an unusable one changes nothing and is logged once."""
        value = self._usable(path)
        if value == "" and stamp and _is_fresh(stamp):
            # The file may be in the middle of being written. If not, a later call takes the empty value.
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
                NOT_EMPTY(value)
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
        """Returns a stamp that changes with the file; the old one while a replacement has removed the file."""
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


def secret(name: str, *, default: Any = ..., check: Callable[[str], Any] | None = None) -> Secret:
    """Reads a secret; one that is missing or empty is a fault unless there is a default."""
    value = env.str(name, default, validate=check or (NOT_EMPTY if default is ... else None))
    path = os.environ.get(f"{name}_FILE")
    return Secret(name, value or "", path, check, may_be_empty=default is not ...)


def sender(value: str) -> None:
    """Checks a sender of mail: an email address, with a name before it or without."""
    _mailbox(value, "Must be an email address, or a name and the address in <>.")


def sentry_dsn(value: str) -> None:
    """Checks the address of error reports by the library that sends them; it may be empty."""
    if not value:
        return
    # Loaded only where errors are reported.
    dsn = import_string("sentry_sdk.utils.Dsn")
    try:
        dsn(value)
    except ValueError:
        raise ValidationError("Must be https://<key>@<host>/<project>, or empty.") from None
    _refuse_insecure(value)


def fernet_keys(value: str) -> None:
    """Checks at the start, not at the first sign-in, that there is a key and that each can encrypt."""
    keys = [part for each in value.split(",") if (part := each.strip())]
    try:
        usable = bool([Fernet(key) for key in keys])
    except ValueError:
        usable = False
    if not usable:
        raise ValidationError("Must be Fernet keys: 32 random bytes each, in base64url.")


def certificates(value: str) -> None:
    """Checks that a path, if there is one, leads to a file of PEM certificates."""
    try:
        usable = not value or bool(create_default_context(cafile=value).get_ca_certs())
    except OSError:
        usable = False
    if not usable:
        raise ValidationError("Must be the path of a file of PEM certificates of authorities.")


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


def address_or_empty(value: str) -> None:
    """Checks that an address, if there is one, is an absolute http(s) address."""
    if value:
        _address(value)


def label(value: str) -> None:
    """Checks that a text can be shown in one line."""
    if len(value) > LABEL_LENGTH or not value.isprintable():
        raise ValidationError(f"Must be at most {LABEL_LENGTH} printable characters.")


def publish_secrets(value: str) -> None:
    """Checks that no publish secret can be guessed."""
    if any(len(each.strip()) < SECRET_LENGTH for each in value.split(",") if each.strip()):
        raise ValidationError(f"Each secret must have at least {SECRET_LENGTH} characters.")


def seal(combined: Mapping[str, str]) -> None:
    """Ends the reading: exits with one report of everything missing or wrong, if there is anything.

    ``combined``: sentences about variables that do not fit together.
    """
    faults = {**{name: [said] for name, said in combined.items()}, **env.faults()}
    lines = [f"  {name}: {' '.join(map(str, faults[name]))}" for name in sorted(faults)]
    if lines:
        # Without a traceback, which would bury the names for the person who starts the server.
        raise SystemExit(
            "The service cannot start; its environment is incomplete or too weak:\n"
            + "\n".join(lines)
        )


def _split(value: str) -> SplitResult:
    try:
        return urlsplit(value)
    except ValueError:
        raise ValidationError("Not an address.") from None


def _parsed(name: str) -> Callable[[Parse], Parse]:
    """Registers ``env.<name>``: a parser whose errors name the expected form and never the given value."""

    def register(parse: Parse) -> Parse:
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


def owner_address() -> str:
    """``DATABASE_OWNER_URL``; empty without one. Only what changes the schema reads it, and is given it."""
    try:
        value = FileAwareEnv(strip_whitespace=True).str("DATABASE_OWNER_URL", "")
        if value:
            _database_url(value)
    except (OSError, ValueError, ValidationError):
        raise SystemExit(
            "DATABASE_OWNER_URL must be postgresql://…, or a file with that."
        ) from None
    return value


@_parsed("address")
def _address(value: str) -> str:
    """An absolute http(s) address, without a trailing slash."""
    parts = _split(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValidationError("Must be an absolute http(s) address.")
    _refuse_insecure(value)
    return value.rstrip("/")


def _refuse_insecure(address: str) -> None:
    """Refuses http, which anybody on the way reads and changes, for all but this machine."""
    if _split(address).scheme == "http" and not is_loopback(address):
        raise ValidationError("Must be https; http is for loopback addresses.")


@_parsed("second_factor")
def _second_factor(value: str, *, address: str) -> bool:
    """Parses ``required``, or ``off``, which is for a service that only its own machine reaches."""
    if value not in {"required", "off"}:
        raise ValidationError("Must be required or off.")
    if value == "off" and not is_loopback(address):
        raise ValidationError("off is accepted only where BASE_URL is a loopback address.")
    return value == "required"


@_parsed("words")
def _words(value: str) -> list[str]:
    return [part for each in value.split(",") if (part := each.strip())]


@_parsed("emails")
def _emails(value: str) -> list[str]:
    """``ops@example.com,…``: one email address or several."""
    emails: list[str] = _words(value)
    NOT_EMPTY(emails)
    for each in emails:
        _mailbox(each, "Must be email addresses, separated by commas.")
    return emails


def _mailbox(value: str, otherwise: str) -> None:
    """Checks an address by Django's own check before sending, and that it has a host."""
    try:
        sanitize_address(value, "utf-8")
    except ValueError:
        raise ValidationError(otherwise) from None
    if not EMAIL.fullmatch(parseaddr(value)[1]):
        raise ValidationError(otherwise)


@_parsed("origins")
def _origins(value: str) -> list[str]:
    """Parses ``https://app.example.com,tauri://localhost,…``; refuses ``*`` and ``null``, which are every site."""
    origins: list[str] = _words(value)
    if not all(ORIGIN.fullmatch(each) for each in origins):
        raise ValidationError(
            "Each origin is scheme://host, with a port or without, and no path. `null` is every sandboxed page."
        )
    return origins


@_parsed("networks")
def _networks(value: str) -> list[Network]:
    return [_network(each) for each in _words(value)]


def _pairs(value: str) -> Iterator[tuple[str, str]]:
    """Yields the names and values of ``name=value,…``."""
    for each in _words(value):
        name, _, given = each.partition("=")
        yield name.strip(), given.strip()


@_parsed("network_factors")
def _network_factors(value: str) -> dict[Network, int]:
    """Parses ``203.0.113.0/24=20,…``: the factor of each known network's rate limits."""
    factors = {}
    for network, factor in _pairs(value):
        if not factor.isdecimal() or int(factor) < 1:
            raise ValidationError("Each network needs a whole factor, as in 203.0.113.0/24=20.")
        factors[_network(network)] = int(factor)
    return factors


@_parsed("rates")
def _rates(value: str) -> dict[str, str]:
    """Parses ``auth.ip=60/m,…``: limits by name, each a count per period of s, m, h or d."""
    rates = dict(_pairs(value))
    if not all(RATE.fullmatch(rate) for rate in rates.values()):
        raise ValidationError("Each limit is name=count/period, as in auth.ip=60/m.")
    if rates.keys() - DEFAULTS.keys():
        raise ValidationError(f"There are no other limits than {', '.join(sorted(DEFAULTS))}.")
    return rates


@_parsed("claims")
def _claims(value: str) -> dict[str, str]:
    """Parses ``repository=owner/project,…``: the required value of each claim of an identity token."""
    pairs = list(_pairs(value))
    claims = dict(pairs)
    if len(claims) < len(pairs) or not all(name and wanted for name, wanted in pairs):
        raise ValidationError("Each claim is name=value, once, as in ref=refs/heads/main.")
    return claims


@_parsed("time_of_day")
def _time_of_day(value: str) -> dt.time | None:
    """``HH:MM``; empty is None."""
    if not value:
        return None
    if not TIME_OF_DAY.fullmatch(value):
        raise ValidationError("Must be a time of day (UTC) as in 02:30, or empty.")
    return dt.time.fromisoformat(value)


@_parsed("days_or_none")
def _days_or_none(value: str) -> int | None:
    """A number of days, or ``none``."""
    if value.lower() == "none":
        return None
    # DAYS bounds it anyway; Python reads no number of thousands of digits.
    if not value.isdecimal() or len(value) > 5:
        raise ValidationError("Must be a number of days, or none.")
    return int(DAYS(int(value)))


@_parsed("storage_url")
def _storage_url(value: str) -> dict[str, str]:
    """``file:///path`` or ``s3://bucket[/prefix]?endpoint=…&region=…``, as the parts that matter."""
    parts = _split(value)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return {"kind": "file", "path": unquote(parts.path)}
    options = dict(parse_qsl(parts.query))
    if parts.scheme != "s3" or not parts.netloc or options.keys() - {"endpoint", "region"}:
        raise ValidationError("Must be file:///path or s3://bucket[/prefix]?endpoint=…&region=….")
    if endpoint := options.get("endpoint"):
        _address(endpoint)
    return {"kind": "s3", "bucket": parts.netloc, "prefix": parts.path.strip("/"), **options}


@_parsed("syslog_url")
def _syslog_url(value: str) -> Receiver | None:
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
    """Returns the lines of a file in base64, as Tauri writes a key; any other value stays as it is."""
    try:
        text = b64decode(value, validate=True).decode()
    except ValueError:
        return [value]
    return text.splitlines() if text.startswith("untrusted comment:") else [value]


def _network(value: str) -> Network:
    """Parses a network; an IPv4 network that is written as IPv6 counts as IPv4, as addresses do."""
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
