"""Completes an authorisation, and provides fresh access tokens."""

import logging
import time
from collections.abc import Callable, Sequence
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
from accounts.connections.scopes import granted
from accounts.models import Connection, Session, User
from config.platform.db.connections import release_connection
from config.platform.encryption import CannotDecrypt
from config.platform.problems.problem import Problem, ProviderRejected, ServiceUnavailable
from config.platform.runtime.clock import clock_from

# The longest wait of a caller for a concurrent refresh, and the seconds between two checks.
PATIENCE = timedelta(seconds=5)
LOOK_SECONDS = 0.1
# A token younger than this is not renewed because a caller reports it as refused.
TRUSTED = timedelta(seconds=30)

log = logging.getLogger(__name__)


class CodeRefused(ProviderRejected):
    default_detail = "The provider does not accept this code. Start the authorisation again."


class ReauthorisationNeeded(Problem):
    """A grant that only the person can renew."""

    code = "reauthorisation_needed"
    status = 409
    title = "Authorisation needed again"
    default_detail = "The provider no longer accepts this connection. Connect it again."


class RefreshUnderWay(ServiceUnavailable):
    default_detail = "This connection is being renewed. Please try again shortly."


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An access token of a third party; ``expires_at`` is None for a token without an end."""

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
    """Exchanges an authorisation's code for a connection, which replaces an existing one.

    Raises ``ProviderNotConfigured``, ``StateInvalid``, ``CodeRefused``, and the problem of a failed provider.
    """
    party = find(provider)
    asked = consume(user_id=user_id, session_id=session_id, provider=provider, state=state, now=now)
    if party.iss_required and issuer is None:
        raise StateInvalid(
            "The provider's redirect names its issuer, which is missing here. Start again, and send its `iss`."
        )
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
    *,
    user_id: UUID,
    provider: str,
    refused: str | None,
    before_asking: Callable[[], None],
    by: Actor,
    now: datetime,
) -> Access:
    """A fresh access token, renewed if necessary.

    ``refused`` is an access token that the third party refused; it is renewed early if it is still the current one.
    ``before_asking`` is called once before the provider is asked, and may refuse by a problem. Raises
    ``ConnectionNotFound``, ``ReauthorisationNeeded``, ``ProviderNotConfigured``, ``RefreshUnderWay``, and the problem
    of a failed provider; the last two, and that of ``before_asking``, only without a usable token.
    """
    party = find(provider)
    clock, renewed, allowed = clock_from(now), False, False
    while True:
        at = clock()
        stored = _read(user_id, provider, refused=refused, at=at)
        if renewed or stored.is_fresh(at):
            return stored.as_access()
        try:
            if not allowed:
                before_asking()
                allowed = True
            renewed = _renew(stored, party, by=by, at=at)
        except Problem:
            if stored.is_usable(at):
                return stored.as_access()
            raise
        if renewed:
            continue
        # Another process is renewing it.
        if stored.is_usable(at):
            return stored.as_access()
        if at - now > PATIENCE:
            raise RefreshUnderWay
        release_connection()
        time.sleep(LOOK_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredTokens:
    """A connection as it was read. ``is_refused``: the third party refuses its access token."""

    connection: Connection
    refresh: str | None = field(repr=False)
    access: str = field(repr=False)
    is_refused: bool

    def is_fresh(self, at: datetime) -> bool:
        return not self.is_refused and not self.connection.is_due(at=at)

    def is_usable(self, at: datetime) -> bool:
        return not self.is_refused and self.connection.is_usable(at=at)

    def as_access(self) -> Access:
        return Access(access_token=self.access, expires_at=self.connection.expires_at)


def _read(user_id: UUID, provider: str, *, refused: str | None, at: datetime) -> _StoredTokens:
    rows = Connection.objects.select_related("user")
    connection = rows.filter(user=user_id, provider=provider).first()
    if connection is None:
        raise ConnectionNotFound
    if connection.lapsed_at is not None and not connection.is_unexplained:
        raise ReauthorisationNeeded
    try:
        refresh, access = disconnecting.tokens_of(connection)
    except CannotDecrypt:
        # Not marked in the row: the connection works again once operators restore the key.
        log.exception("connection_not_readable", extra={"provider": provider})
        raise ReauthorisationNeeded from None
    assert access is not None
    theirs = refused is not None and compare_digest(
        refused.encode("utf-8", "replace"), access.encode()
    )
    is_refused = theirs and connection.refreshed_at <= at - TRUSTED
    return _StoredTokens(
        connection=connection, refresh=refresh, access=access, is_refused=is_refused
    )


def _renew(stored: _StoredTokens, party: OAuthProvider, *, by: Actor, at: datetime) -> bool:
    """Renews the tokens; returns False if another process is renewing them, or the grant is over."""
    connection = stored.connection
    if stored.refresh is None:
        if not stored.is_usable(at):
            rows = refreshing.of_generation(connection)
            refreshing.lapse(rows, connection, Connection.Lapse.EXPIRED, by=by, now=at)
        raise ReauthorisationNeeded
    if connection.ask_again_at is not None and connection.ask_again_at > at:
        if connection.is_unexplained:
            raise ReauthorisationNeeded
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
    """Stores the new tokens; for a person who lost access meanwhile, revokes them and returns None."""
    with transaction.atomic():
        # Disabling and revocation take the same lock, so that no connection outlives them.
        user = User.objects.select_for_update(no_key=True).filter(pk=user_id).first()
        lives = Session.objects.filter(pk=session_id, user=user_id, ended_at=None).exists()
        if user is None or not user.is_active or not lives:
            if disconnecting.is_revocable(party.name):
                _revoke_later(user_id, party, [tokens.refresh, tokens.access], now=now)
            return None
        known = user.connections.filter(provider=party.name).select_for_update().first()
        _spare(party, tokens, user_id=user_id, by=by, now=now)
        if known is not None and not party.one_grant and disconnecting.is_revocable(party.name):
            _revoke_replaced(known, party, tokens, now=now)
        connection = _put(user, party, tokens, known, now=now)
        before = {"scopes": known.scopes} if known else None
        after = {"provider": party.name, "scopes": connection.scopes}
        record("connection:authorised", user, by=by, now=now, before=before, after=after)
    return connection


def _put(
    user: User, party: OAuthProvider, tokens: Tokens, before: Connection | None, *, now: datetime
) -> Connection:
    connection = before or Connection(user=user, provider=party.name)
    columns = refreshing.token_columns(connection, tokens, now=now)
    columns["connected_at"] = now
    if tokens.scopes is None:
        # By RFC 6749 (5.1) a response without scopes grants those that were requested.
        columns["scopes"] = granted(list(party.scopes)) or []
    if before is None:
        return Connection.objects.create(user=user, provider=party.name, **columns)
    # A refresh of the previous grant that is still under way matches neither fence nor generation.
    rows = Connection.objects.filter(pk=before.pk)
    rows.update(**columns, generation=F("generation") + 1, fence=F("fence") + 1)
    return rows.get()


def _spare(
    party: OAuthProvider, tokens: Tokens, *, user_id: UUID, by: Actor, now: datetime
) -> None:
    """Cancels queued revocations that would end these tokens."""
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
    # A provider that returns a known token has continued the same grant.
    if _all_of(tokens).isdisjoint(replaced):
        _revoke_later(before.user_id, party, replaced, now=now)


def _all_of(tokens: Tokens) -> set[str]:
    return {each for each in (tokens.refresh, tokens.access) if each}


def _revoke_later(
    user_id: UUID, party: OAuthProvider, tokens: Sequence[str | None], *, now: datetime
) -> None:
    disconnecting.revoke_later(user_id=user_id, provider=party.name, tokens=tokens, now=now)
