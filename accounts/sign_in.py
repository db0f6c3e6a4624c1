"""Signing in: an email and a password become a session with its first pair of tokens."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from django.conf import settings
from django.contrib.auth.hashers import check_password
from django.db import transaction

from accounts.access_tokens import AccessToken
from accounts.audit import Actor, record
from accounts.claims import claims_of
from accounts.models import RefreshToken, Session, User
from accounts.refresh_tokens import RefreshSecret
from accounts.revocation import lock_user
from config.problems import Problem

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


def sign_in(*, email: str, password: str, device: Device, now: datetime) -> TokenPair:
    """A new session, or ``InvalidCredentials``.

    The password is checked before the user's row is locked, because that takes 20 ms, and what was checked
    is compared again under the lock: a login must not outlive a password change or a revocation.
    """
    known = User.objects.filter(email=email).only("password", "is_active", "client_id").first()
    checked = known.password if known else NOBODYS_PASSWORD
    if not check_password(password, checked) or known is None or not _may_sign_in(known):
        raise InvalidCredentials
    secret = RefreshSecret.new()
    token_hash = secret.hash()
    with transaction.atomic():
        user = _still(known, checked)
        claims = claims_of(user.pk)
        if claims is None:
            raise InvalidCredentials
        session = _start_session(user, device=device, now=now)
        RefreshToken.objects.create(
            id=secret.id,
            user=user,
            session=session,
            token_hash=token_hash,
            device_fp=device.fingerprint,
            issued_at=now,
            expires_at=token_end(session, now=now),
        )
        User.objects.filter(pk=user.pk).update(last_login=now)
        by = Actor(
            name=user.email, id=user.pk, address=device.address, request_id=device.request_id
        )
        record("session:started", by=by, now=now, target=user.email, target_id=session.pk)
        access = AccessToken.issue(
            user_id=user.pk,
            session_id=session.pk,
            epoch=user.epoch,
            claims=claims,
            now=now,
            session_end=session.expires_at,
        )
        return TokenPair.of(access, secret)


def _may_sign_in(user: User) -> bool:
    return user.is_active and user.client_id is not None


def _still(known: User, checked: str) -> User:
    """The user's row, locked, if what was checked still holds of it."""
    try:
        user = lock_user(known.pk)
    except User.DoesNotExist:
        raise InvalidCredentials from None
    if user.password != checked or not _may_sign_in(user):
        raise InvalidCredentials
    return user


def token_end(session: Session, *, now: datetime) -> datetime:
    """30 days from now, or the session's own end where that comes first."""
    end = now + settings.REFRESH_LIFETIME
    return min(end, session.expires_at) if session.expires_at else end


def _start_session(user: User, *, device: Device, now: datetime) -> Session:
    days = settings.SESSION_DAYS
    return Session.objects.create(
        user=user,
        device_fp=device.fingerprint,
        started_at=now,
        started_from=device.address,
        last_used_at=now,
        last_used_from=device.address,
        expires_at=now + timedelta(days=days) if days else None,
    )
