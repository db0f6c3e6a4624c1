"""Completing an authorisation, and giving out access tokens that are fresh."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hmac import compare_digest
from math import ceil
from uuid import UUID

from django.db import transaction
from django.db.models import F

from accounts.audit import Actor, record
from accounts.connections import disconnecting, oauth, refreshing
from accounts.connections.authorisation import StateInvalid, consume
from accounts.connections.disconnecting import ConnectionNotFound
from accounts.connections.oauth import GrantRefused, ProviderFailed, Tokens
from accounts.connections.provider_settings import OAuthProvider
from accounts.connections.providers import find
from accounts.models import Connection, Session, User
from config.api.problems import Problem, ProviderRejected, ServiceUnavailable
from config.clock import clock_from
from config.db.connections import release_connection
from config.encryption import CannotDecrypt

# How long a caller waits for the refresh of another, and how often it looks.
PATIENCE = timedelta(seconds=5)
LOOK_SECONDS = 0.1
# A token that was got just now is not renewed because a third party is said to refuse it.
TRUSTED = timedelta(seconds=30)

log = logging.getLogger(__name__)


class CodeRefused(ProviderRejected):
    default_detail = "The provider does not accept this code. Begin the authorisation again."


class ReauthorisationNeeded(Problem):
    """The grant is over, and only the person can give another."""

    code = "reauthorisation_needed"
    status = 409
    title = "Authorisation needed again"
    default_detail = "The provider no longer accepts this connection. Connect it again."


class RefreshUnderWay(ServiceUnavailable):
    default_detail = "This connection is being renewed. Please try again shortly."


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An access token of a third party; ``expires_at`` is None where it does not end by itself."""

    access_token: str = field(repr=False)
    expires_at: datetime | None


def complete(
    *,
    user_id: UUID,
    session_id: UUID,
    provider: str,
    code: str,
    state: str,
    issuer: str | None,
    by: Actor,
    now: datetime,
) -> Connection:
    """Turns an authorisation's code into a connection, in place of one that was there.

    Raises ``ProviderNotConfigured``, ``StateInvalid``, ``CodeRefused``, and the problem of a provider that failed.
    """
    party = find(provider)
    asked = consume(user_id=user_id, session_id=session_id, provider=provider, state=state, now=now)
    if issuer is not None and party.issuer and issuer != party.issuer:
        raise StateInvalid
    release_connection()
    try:
        tokens = oauth.redeem(party, code=code, asked=asked, now=now)
    except GrantRefused:
        raise CodeRefused from None
    except ProviderFailed as failure:
        raise failure.problem() from None
    connection = _connect(party, tokens, user_id=user_id, session_id=session_id, by=by, now=now)
    if connection is None:
        raise StateInvalid
    return connection


def access_token(
    *, user_id: UUID, provider: str, refused: str | None, by: Actor, now: datetime
) -> Access:
    """An access token that is good for a while, renewed where it has to be.

    ``refused``: the access token that the third party refused, if it did; that one is renewed before its time.
    Raises ``ConnectionNotFound``, ``ReauthorisationNeeded``, ``ProviderNotConfigured``, ``RefreshUnderWay``, and
    the problem of a provider that failed; the last two only while there is nothing usable left.
    """
    party = find(provider)
    clock, renewed = clock_from(now), False
    while True:
        at = clock()
        held = _read(user_id, provider, refused=refused, at=at)
        if renewed or held.is_fresh(at):
            return held.given()
        try:
            renewed = _renew(held, party, by=by, at=at)
        except Problem:
            if held.is_usable(at):
                return held.given()
            raise
        if renewed:
            continue
        # Somebody else asks already.
        if held.is_usable(at):
            return held.given()
        if at - now > PATIENCE:
            raise RefreshUnderWay
        release_connection()
        time.sleep(LOOK_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A connection as it was read. ``is_refused``: the third party does not take its access token."""

    connection: Connection
    refresh: str | None = field(repr=False)
    access: str = field(repr=False)
    is_refused: bool

    def is_fresh(self, at: datetime) -> bool:
        return not self.is_refused and not self.connection.is_due(at=at)

    def is_usable(self, at: datetime) -> bool:
        return not self.is_refused and self.connection.is_usable(at=at)

    def given(self) -> Access:
        return Access(access_token=self.access, expires_at=self.connection.expires_at)


def _read(user_id: UUID, provider: str, *, refused: str | None, at: datetime) -> _Held:
    rows = Connection.objects.select_related("user")
    connection = rows.filter(user=user_id, provider=provider).first()
    if connection is None:
        raise ConnectionNotFound
    if connection.lapsed_at is not None:
        raise ReauthorisationNeeded
    try:
        refresh, access = disconnecting.tokens_of(connection)
    except CannotDecrypt:
        # Not marked: it is well again where operators give the key back.
        log.exception("connection_not_readable", extra={"provider": provider})
        raise ReauthorisationNeeded from None
    assert access is not None
    theirs = refused is not None and compare_digest(
        refused.encode("utf-8", "replace"), access.encode()
    )
    is_refused = theirs and connection.refreshed_at <= at - TRUSTED
    return _Held(connection=connection, refresh=refresh, access=access, is_refused=is_refused)


def _renew(held: _Held, party: OAuthProvider, *, by: Actor, at: datetime) -> bool:
    """Whether new tokens are kept; False where another asks for them, or the grant is over."""
    connection = held.connection
    if held.refresh is None:
        if not held.is_usable(at):
            rows = refreshing.of_generation(connection)
            refreshing.lapse(rows, connection, Connection.Lapse.EXPIRED, by=by, now=at)
        raise ReauthorisationNeeded
    if connection.ask_again_at is not None and connection.ask_again_at > at:
        left = ceil((connection.ask_again_at - at).total_seconds())
        raise oauth.problem_of(connection.failure, seconds=left)
    lease = refreshing.take(connection)
    if lease is None:
        return False
    try:
        return refreshing.refresh(lease, provider=party, by=by, now=at)
    except ProviderFailed as failure:
        raise failure.problem() from None


def _connect(
    party: OAuthProvider,
    tokens: Tokens,
    *,
    user_id: UUID,
    session_id: UUID,
    by: Actor,
    now: datetime,
) -> Connection | None:
    """The connection with its new tokens; None for somebody who lost access meanwhile, and then they are revoked."""
    with transaction.atomic():
        # The lock that disabling and every revocation take: what is granted here does not outlive them.
        user = User.objects.select_for_update(no_key=True).filter(pk=user_id).first()
        lives = Session.objects.filter(pk=session_id, user=user_id, ended_at=None).exists()
        if user is None or not user.is_active or not lives:
            if disconnecting.is_revocable(party.name):
                _revoke_later(user_id, party, [tokens.refresh, tokens.access], now=now)
            return None
        before = user.connections.filter(provider=party.name).select_for_update().first()
        _spare(party, tokens, user_id=user_id, by=by, now=now)
        if before is not None and not party.one_grant and disconnecting.is_revocable(party.name):
            _revoke_replaced(before, party, tokens, now=now)
        connection = _put(user, party, tokens, before, now=now)
        record(
            "connection:authorised",
            by=by,
            now=now,
            target=user,
            before={"scopes": before.scopes} if before else None,
            after={"provider": party.name, "scopes": connection.scopes},
        )
    return connection


def _put(
    user: User, party: OAuthProvider, tokens: Tokens, before: Connection | None, *, now: datetime
) -> Connection:
    kept = refreshing.held(tokens, now=now)
    kept["connected_at"] = now
    if tokens.scopes is None:
        kept["scopes"] = sorted(party.scopes)
    if before is None:
        return Connection.objects.create(user=user, provider=party.name, **kept)
    # A refresh of the grant before, still under way, finds neither its number nor its generation.
    rows = Connection.objects.filter(pk=before.pk)
    rows.update(**kept, generation=F("generation") + 1, fence=F("fence") + 1)
    return rows.get()


def _spare(
    party: OAuthProvider, tokens: Tokens, *, user_id: UUID, by: Actor, now: datetime
) -> None:
    """Has nothing revoked any more that would end these tokens."""
    if party.one_grant:
        of, reason = None, "Connected again: the provider keeps one grant per person."
    else:
        of, reason = _all_of(tokens), "Connected again: the provider gave the same tokens."
    disconnecting.forget_revocations(
        user_id=user_id, provider=party.name, by=by, now=now, reason=reason, of=of
    )


def _revoke_replaced(
    before: Connection, party: OAuthProvider, tokens: Tokens, *, now: datetime
) -> None:
    try:
        replaced = disconnecting.tokens_of(before)
    except CannotDecrypt:
        return
    # Of whom a provider gives the same again, it has gone on with the same grant.
    if _all_of(tokens).isdisjoint(replaced):
        _revoke_later(before.user_id, party, replaced, now=now)


def _all_of(tokens: Tokens) -> set[str]:
    return {each for each in (tokens.refresh, tokens.access) if each}


def _revoke_later(
    user_id: UUID, party: OAuthProvider, tokens: Sequence[str | None], *, now: datetime
) -> None:
    disconnecting.revoke_later(user_id=user_id, provider=party.name, tokens=tokens, now=now)
