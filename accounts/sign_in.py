"""Signing in: an email and a password become a session with its first pair of tokens."""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from operator import itemgetter
from typing import NamedTuple, Self
from uuid import UUID, uuid4

from django.conf import settings
from django.contrib.auth.hashers import check_password, make_password
from django.db import DatabaseError

from accounts.access_tokens import AccessToken, Claims
from accounts.audit import INSERT, VALUES, Actor, row_of
from accounts.claims import read, with_claims
from accounts.known_places import KNOWN, Limits, Place, limits_of_sign_in
from accounts.models import User
from accounts.refresh_tokens import RefreshSecret
from config.database import release_connection
from config.problems import Problem, ServiceUnavailable
from config.statements import Statement

log = logging.getLogger(__name__)

# Checked where there is no such user, so that an unknown email takes as long as a wrong password.
NOBODYS_PASSWORD = (
    "argon2$argon2id$v=19$m=19456,t=2,p=1"  # noqa: S105 - of random bytes that were thrown away
    "$YW4tdW5rbm93bi1lbWFpbC0x$YVy7MLkYzIUbxjjglQtKk+FMr7rm2QXLXScr6zTA9Zs"
)
MAX_PASSWORD = 1024


class InvalidCredentials(Problem):
    """One answer for an unknown email, a wrong password, a disabled user and a user without a client."""

    code = "invalid_credentials"
    status = 401
    title = "Sign-in failed"
    default_detail = "That email and password do not go together."


class TokenPair(NamedTuple):
    """What a shell holds: an access token, the refresh token that gets the next one, and seconds the first lasts."""

    access: str
    refresh: str
    expires_in: int

    @classmethod
    def of(cls, access: AccessToken, refresh: RefreshSecret) -> Self:
        """Signs the access token; to be done before the other is committed, lest a key that cannot sign cost it."""
        return cls(str(access), refresh.text(), access.expires_in)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Where a call comes from, as far as it says."""

    fingerprint: str = ""
    address: str | None = None
    request_id: str = ""


class Account(NamedTuple):
    """What is known of whoever has an email, and of where they sign in, before they have shown a password."""

    email: str
    known: "_Known | None"
    # What a failure counts against.
    limits: Limits


def account_of(email: str, *, device: Device) -> Account:
    """One question whoever asks, so that it tells nobody anything by the time it takes."""
    name, place = email.lower(), Place(device.fingerprint, device.address)
    row = _question().row({"email": name, **place.values()})
    at_device, at_address, *columns = row or (False, False)
    limits = limits_of_sign_in(
        account=name, place=place, at_device=at_device, at_address=at_address
    )
    known = _Known._make([*columns[:5], read(columns[5:])]) if columns else None
    return Account(name, known, limits)


def sign_in(
    *, email: str, password: str, device: Device, now: datetime, account: Account | None = None
) -> TokenPair:
    """A new session, or ``InvalidCredentials``. ``account`` is what :func:`account_of` has just found, if anything.

    The password is checked before the user's row is locked, because that takes 20 ms, and what was checked
    is compared again by the statement that takes the lock: a login must not outlive a password change or a revocation.
    """
    known = (account or account_of(email, device=device)).known
    checked = known.password if known else NOBODYS_PASSWORD
    outdated: list[str] = []
    right = check_password(password, checked, outdated.append)
    claims = known.claims if known and known.is_active else None
    if not right or known is None or claims is None:
        raise InvalidCredentials
    while (pair := _begun(known, claims, device=device, now=now)) is None:
        # The epoch or the email has moved, and with it perhaps more; or another sign-in has renewed the hash.
        again = account_of(email, device=device).known
        if again is None or not again.is_active or not again.claims:
            raise InvalidCredentials
        if again.password != known.password and not check_password(password, again.password):
            raise InvalidCredentials
        known, claims = again, again.claims
    if outdated:
        _renew_hash(known, password)
    return pair


def _begun(known: "_Known", claims: Claims, *, device: Device, now: datetime) -> TokenPair | None:
    """A new session, if what is known of the person still holds once their row is locked."""
    secret, session_id, session_end = RefreshSecret.new(), uuid4(), _session_end(now)
    access = AccessToken.issue(
        user_id=known.id,
        session_id=session_id,
        epoch=known.epoch,
        claims=claims,
        now=now,
        session_end=session_end,
    )
    pair = TokenPair.of(access, secret)
    by = Actor(name=known.email, id=known.id, address=device.address, request_id=device.request_id)
    values = {
        **row_of("session:started", by=by, now=now, target=known.email, target_id=session_id),
        "user": known.id,
        "email": known.email,
        "epoch": known.epoch,
        "password": known.password,
        "client": claims.client_id,
        "session": session_id,
        "session_end": session_end,
        "token": secret.id,
        "hash": secret.hash(),
        "token_end": token_end(session_end, now=now),
        "device": device.fingerprint,
        "now": now,
    }
    return pair if _BEGIN.row(values) else None


class _Known(NamedTuple):
    """Whoever has an email, as found; nothing of it is locked."""

    id: UUID
    email: str
    password: str
    is_active: bool
    epoch: int
    # None without a client that has a licence.
    claims: Claims | None


_FIND = f"""
SELECT {KNOWN}, person.id, person.email, person.password, person.is_active, person.epoch, claims.*
FROM accounts_user person
{{claims}}
WHERE person.email = %(email)s
"""  # noqa: S608 - built from constants

# The update takes the lock. Whoever waited for it finds the row as the one before left it.
_BEGIN = Statement(
    f"""
WITH person AS (
    UPDATE accounts_user SET last_login = %(now)s
    WHERE id = %(user)s AND email = %(email)s AND password = %(password)s AND epoch = %(epoch)s
      AND is_active AND client_id = %(client)s
    RETURNING id
),
session AS (
    INSERT INTO accounts_session
        (id, user_id, device_fp, started_at, started_from, last_used_at, last_used_from, expires_at, ended_by)
    SELECT %(session)s, id, %(device)s, %(now)s, %(address)s::inet, %(now)s, %(address)s::inet,
           %(session_end)s::timestamptz, ''
    FROM person
    RETURNING id, user_id
),
event AS (
    {INSERT} SELECT {VALUES} FROM session
)
INSERT INTO accounts_refreshtoken (id, user_id, session_id, token_hash, device_fp, issued_at, expires_at)
SELECT %(token)s, user_id, id, %(hash)s, %(device)s, %(now)s, %(token_end)s
FROM session
RETURNING id
""",  # noqa: S608 - built from constants
    order=itemgetter("user"),
)


@cache
def _question() -> Statement:
    return Statement(with_claims(_FIND))


def _renew_hash(known: _Known, password: str) -> None:
    """Replaces a hash that was made with older settings, unless the password changed meanwhile."""
    # Where many are signing in just now, or the database is away, the next time will do: the session stands.
    try:
        renewed = make_password(password)
        User.objects.filter(pk=known.id, password=known.password).update(password=renewed)
    except (ServiceUnavailable, DatabaseError):
        log.warning("hash_not_renewed")
        release_connection()


def token_end(session_end: datetime | None, *, now: datetime) -> datetime:
    """30 days from now, or the session's own end where that comes first."""
    end: datetime = now + settings.REFRESH_LIFETIME
    return min(end, session_end) if session_end else end


def _session_end(now: datetime) -> datetime | None:
    days = settings.SESSION_DAYS
    return now + timedelta(days=days) if days else None
