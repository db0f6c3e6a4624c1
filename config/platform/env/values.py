"""Parses the settings that are no addresses: numbers, words, keys and lists."""

import datetime as dt
import math
import re
from collections.abc import Iterator
from email.utils import parseaddr

from cryptography.fernet import Fernet
from django.core.mail.message import sanitize_address
from environs import ValidationError, validate

from config.platform.edge.ratelimits.table import DEFAULTS
from config.platform.env.hosts import is_loopback
from config.platform.env.reading import parser
from config.platform.env.secret_files import NOT_EMPTY

RATE = re.compile(r"[1-9]\d*/([1-9]\d*)?[smhd]", re.ASCII)
# A host may be a single label, as on an office network.
EMAIL = re.compile(r"[^\s@,;<>]+@[^\s@,;<>]+")
TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)
# Ids of keys, customers and subscriptions are excluded: people paste them by mistake.
STRIPE_ID = re.compile(r"(?!(?:[spr]k|whsec|cus|sub|si|acct)_)[\w-]{1,255}", re.ASCII)
# A century.
MOST_DAYS = 36_500
# A year: longer than any wait here, and within what every system clock can represent.
MOST_SECONDS = 31_536_000.0
# As long as Django's own keys.
KEY_LENGTH = 50
LONG_KEY = validate.Length(min=KEY_LENGTH, error=f"Must have at least {KEY_LENGTH} characters.")
LABEL_LENGTH = 40
STRIPE_KEY = validate.Regexp(
    r"(?!pk_)[!-~]*\Z",
    error="Must be a secret or restricted key (sk_… or rk_…); a publishable one reads nothing.",
)


@parser
def whole(value: str | int | None, *, least: int, most: int) -> int | None:
    """Parses a whole number. An absent one is the default, which is not checked."""
    if not isinstance(value, str):
        return value
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise ValidationError(f"Must be a whole number from {least} to {most}.")
    return number


@parser
def number(
    value: str | float | None, *, most: float = MOST_SECONDS, above: bool = False
) -> float | None:
    """Parses a finite number from 0 (with ``above``, exclusive) to ``most``. An absent one is the default."""
    if not isinstance(value, str):
        return value
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    # Every comparison with NaN is false.
    if not (0 <= number <= most) or (above and number == 0):
        lower_bound = "above" if above else "from"
        raise ValidationError(
            f"Must be a number {lower_bound} 0 to {most:.10g}, such as 60 or 2.5."
        )
    return number


@parser
def words(value: str) -> list[str]:
    return [part for each in value.split(",") if (part := each.strip())]


def pairs(value: str) -> Iterator[tuple[str, str]]:
    """Yields the names and values of ``name=value,…``."""
    for each in words(value):
        name, _, given = each.partition("=")
        yield name.strip(), given.strip()


def sender(value: str) -> None:
    """Checks a sender of mail: an email address, with an optional name before it."""
    _mailbox(value, "Must be an email address, or a name and the address in <>.")


@parser
def emails(value: str) -> list[str]:
    """Parses ``ops@example.com,…``: one email address or several."""
    emails: list[str] = words(value)
    NOT_EMPTY(emails)
    for each in emails:
        _mailbox(each, "Must be email addresses, separated by commas.")
    return emails


def _mailbox(value: str, otherwise: str) -> None:
    """Checks an address as Django does before sending, and that it has a host."""
    try:
        sanitize_address(value, "utf-8")
    except ValueError:
        raise ValidationError(otherwise) from None
    if not EMAIL.fullmatch(parseaddr(value)[1]):
        raise ValidationError(otherwise)


@parser
def second_factor(value: str, *, address: str) -> bool:
    """Parses ``required``, or ``off``, which only a service on a loopback address may have."""
    if value not in {"required", "off"}:
        raise ValidationError("Must be required or off.")
    if value == "off" and not is_loopback(address):
        raise ValidationError("off is accepted only where BASE_URL is a loopback address.")
    return value == "required"


@parser
def rates(value: str) -> dict[str, str]:
    """Parses ``auth.ip=60/m,…``: limits by name, each a count per period of s, m, h or d."""
    rates = dict(pairs(value))
    if not all(RATE.fullmatch(rate) for rate in rates.values()):
        raise ValidationError("Each limit is name=count/period, such as auth.ip=60/m.")
    if rates.keys() - DEFAULTS.keys():
        raise ValidationError(f"The only limits are {', '.join(sorted(DEFAULTS))}.")
    return rates


@parser
def time_of_day(value: str) -> dt.time | None:
    """Parses ``HH:MM``; empty is None."""
    if not value:
        return None
    if not TIME_OF_DAY.fullmatch(value):
        raise ValidationError("Must be a time of day (UTC) such as 02:30, or empty.")
    return dt.time.fromisoformat(value)


@parser
def days_or_none(value: str) -> int | None:
    """Parses a number of days, or ``none``."""
    if value.lower() == "none":
        return None
    try:
        return whole(value, least=1, most=MOST_DAYS)
    except ValidationError:
        raise ValidationError(f"Must be a number of days from 1 to {MOST_DAYS}, or none.") from None


def fernet_keys(value: str) -> None:
    """Checks that there is a key and that each can encrypt, so that a bad one stops the start, not a sign-in."""
    try:
        usable = bool([Fernet(key) for key in words(value)])
    except ValueError:
        usable = False
    if not usable:
        raise ValidationError("Must be Fernet keys: 32 random bytes each, in base64url.")


@parser
def stripe_products(value: str) -> list[str]:
    """Parses ids of Stripe products and prices; custom ids may have any form."""
    ids = words(value)
    if not all(STRIPE_ID.fullmatch(each) for each in ids):
        raise ValidationError(
            "Must be ids of products or prices, for example prod_Nf1…,price_1Mo…."
        )
    return ids


def label(value: str) -> None:
    """Checks that a text fits a label of one line."""
    if len(value) > LABEL_LENGTH or not value.isprintable():
        raise ValidationError(f"Must be at most {LABEL_LENGTH} printable characters.")


def long_key(value: str) -> None:
    """Checks that a signing key is long enough."""
    NOT_EMPTY(value)
    LONG_KEY(value)


def one_line_or_empty(value: str) -> None:
    """Checks that a name has no line break or other unprintable character."""
    if not value.isprintable():
        raise ValidationError("Must be one line of printable characters.")


def one_line(value: str) -> None:
    NOT_EMPTY(value)
    one_line_or_empty(value)
