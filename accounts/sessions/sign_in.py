"""Sign-in: an email and a password start a session with its first pair of tokens."""

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Self
from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.db import DatabaseError, transaction

from accounts import mails
from accounts.audit import Actor, record
from accounts.device_names import device_name
from accounts.hashers import check_password
from accounts.hooks import extensions
from accounts.models import RefreshToken, Session, User
from accounts.sessions import devices
from accounts.sessions.access_tokens import AccessToken
from accounts.sessions.known_places import Limits, Place, limits_of_sign_in
from accounts.sessions.lifetime import session_end, token_end
from accounts.sessions.refresh_tokens import RefreshSecret
from accounts.sessions.refusals import queue_refusal
from config.platform.db.connections import release_connection
from config.platform.problems.problem import NotFound, Problem, ServiceUnavailable
from config.platform.text.forms import email_form

log = logging.getLogger(__name__)

# Checked for an unknown email, so that it takes as long as a wrong password.
NOBODYS_PASSWORD = (
    "argon2$argon2id$v=19$m=19456,t=2,p=1"  # nosec B105 # noqa: S105 - of random bytes that were thrown away
    "$YW4tdW5rbm93bi1lbWFpbC0x$YVy7MLkYzIUbxjjglQtKk+FMr7rm2QXLXScr6zTA9Zs"
)
MAX_PASSWORD = 1024


class InvalidCredentials(Problem):
    """The one answer to an unknown email, a wrong password, and a user who is disabled or without a licensed client."""

    code = "invalid_credentials"
    status = 401
    title = "Sign-in failed"
    default_detail = "The email or the password is wrong."


class TokenPair(NamedTuple):
    """The tokens of a shell: an access token, its lifetime in seconds, and the refresh token for the next pair."""

    access: str
    refresh: str
    expires_in: int

    @classmethod
    def of(cls, access: AccessToken, refresh: RefreshSecret) -> Self:
        """Signs the access token. Call it before the refresh token is committed: signing may fail."""
        return cls(str(access), refresh.text(), access.expires_in)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The device that a request reports, and its address."""

    fingerprint: str = ""
    agent: str = ""
    address: str | None = None
    request_id: str = ""

    @property
    def name(self) -> str:
        return device_name(self.agent) or self.fingerprint


class Account(NamedTuple):
    """An email as it was typed, its user if there is one, and the limits that a failed sign-in counts against.

    ``opens``: the user may sign in. ``new_place``: no session of the user has the device, and none the network.
    """

    email: str
    user: User | None
    opens: bool
    limits: Limits
    new_place: bool


def account_of(email: str, *, device: Device) -> Account:
    """Finds the user of an email. Known and unknown emails cost one query each, so that the time reveals nothing."""
    place = Place(device.fingerprint, device.address)
    known = {**place.known(), "licensed": extensions().licensed("client")}
    user: Any = User.objects.by_email(email).annotate(**known).first()
    opens = bool(user and user.is_active and user.licensed)
    limits = limits_of_sign_in(
        account=email_form(email),
        place=place,
        at_device=bool(user and user.at_device),
        at_address=bool(user and user.at_address),
    )
    # The password check that follows may wait for its turn.
    release_connection()
    # Nothing can be told of a place of which nothing is known.
    new_place = bool(user) and any(place) and not (user.at_device or user.at_network)
    return Account(email.lower(), user, opens, limits, new_place)


def sign_in(
    *,
    email: str,
    password: str,
    device: Device,
    now: datetime,
    end_session: UUID | None = None,
    account: Account | None = None,
) -> TokenPair:
    """Starts a session, or raises ``InvalidCredentials``. ``account`` is a fresh result of :func:`account_of`.

    ``end_session`` is the person's session that ends for it. Raises ``DeviceLimitReached`` for one device too many. A
    refusal is audited, and a person is told of a sign-in from a device and a network that no session has.
    """
    account = account or account_of(email, device=device)
    try:
        return _sign_in(account, password, device=device, end_session=end_session, now=now)
    except (InvalidCredentials, NotFound) as refusal:
        # An unknown session to end is refused after the password was found right: that leaves its trace, too.
        refusal.concerning(person=account.user and account.user.pk)
        queue_refusal(
            email=account.email, address=device.address, request_id=device.request_id, now=now
        )
        raise
    except devices.DeviceLimitReached as refusal:
        assert account.user is not None
        refusal.concerning(person=account.user.pk)
        by = _actor(account.user, device)
        devices.record_refusal(account.user.pk, problem=refusal, by=by, now=now)
        raise


def _sign_in(
    account: Account, password: str, *, device: Device, end_session: UUID | None, now: datetime
) -> TokenPair:
    """Starts a session for an account.

    The password is checked before the user's row is locked, because that takes 20 ms. The locked row must still hold
    that password: a login must not outlive a password change or a revocation.
    """
    user = account.user
    outdated: list[str] = []
    right = check_password(password, user.password if user else NOBODYS_PASSWORD, outdated.append)
    # Every refusal comes before the row is locked, so that all take the same time.
    if not right or user is None or not account.opens:
        raise InvalidCredentials
    pair = _start_session(
        user, device=device, new_place=account.new_place, end_session=end_session, now=now
    )
    if pair is None:
        # The row has changed meanwhile; another sign-in may have renewed the hash.
        again = account_of(account.email, device=device)
        return _sign_in(again, password, device=device, end_session=end_session, now=now)
    if outdated:
        _renew_hash(user, outdated[0])
    return pair


def _actor(user: User, device: Device) -> Actor:
    return Actor(name=user.email, id=user.pk, address=device.address, request_id=device.request_id)


def _start_session(
    user: User, *, device: Device, new_place: bool, end_session: UUID | None, now: datetime
) -> TokenPair | None:
    """Starts a session, or returns None if the user has changed since it was read."""
    secret, end = RefreshSecret.new(), session_end(now)
    token_hash = secret.hash()
    by = _actor(user, device)
    with transaction.atomic():
        unchanged = User.objects.filter(email=user.email, password=user.password, is_active=True)
        locked = unchanged.filter(pk=user.pk).select_for_update(no_key=True, of=("self",)).first()
        if locked is None:
            return None
        claims = extensions().claims_of(locked.pk)
        if claims is None:
            raise InvalidCredentials
        devices.make_room(
            locked,
            device_fp=device.fingerprint,
            limit=claims.device_limit,
            end_session=end_session,
            by=by,
            now=now,
        )
        # The first sign-in of all surprises nobody.
        if new_place and locked.last_login is not None:
            mails.signed_in_elsewhere(
                user=locked, device=device.name, address=device.address, now=now
            )
        User.objects.filter(pk=locked.pk).update(last_login=now)
        session = Session.objects.create(
            user=locked,
            device_fp=device.fingerprint,
            agent=device.agent,
            started_at=now,
            started_from=device.address or None,
            last_used_at=now,
            last_used_from=device.address or None,
            expires_at=end,
        )
        RefreshToken.objects.create(
            id=secret.id,
            user=locked,
            session=session,
            token_hash=token_hash,
            device_fp=device.fingerprint,
            issued_at=now,
            expires_at=token_end(end, now=now),
        )
        record("session:started", locked.email, by=by, now=now, target_id=session.pk)
        access = AccessToken.issue(
            user_id=locked.pk,
            session_id=session.pk,
            epoch=locked.epoch,
            claims=claims,
            now=now,
            session_end=end,
        )
        return TokenPair.of(access, secret)


def _renew_hash(user: User, password: str) -> None:
    """Replaces a hash that was made with older settings, of the same text, unless the password changed meanwhile."""
    # Hashing may wait for its turn.
    release_connection()
    # The session stands in any case; under load or without the database a later sign-in renews the hash.
    try:
        renewed = make_password(password)
        User.objects.filter(pk=user.pk, password=user.password).update(password=renewed)
    except (ServiceUnavailable, DatabaseError):
        log.warning("hash_not_renewed")
        release_connection()
