"""Renews a connection's access token: one refresh at a time, by lease, without a lock during the provider's request.

The lease is the row's ``leased_until`` and ``fence``, by the database's clock, which all processes share. It outlasts
a request to the provider (``exchange.MOST_SECONDS``), so the same refresh token is never sent twice at the same time,
which many providers treat as theft.

New tokens are stored only if the ``generation`` has not changed, so a late response changes nothing. The old refresh
token stays until the commit of the new one. If a process dies between the provider's response and that commit, the
next refresh sends the old token, and if a provider with rotation refuses it, ``answer_lost`` explains it to operators.

A refusal in words that ``refusals`` does not know may pass or not. It is asked about again after as long as it has
lasted, at most an hour; after six hours the person is asked too, and the first success heals it.
"""

import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.db.models.functions import Now

from accounts.audit import Actor, record
from accounts.connections import disconnecting, oauth
from accounts.connections.oauth import GrantRefused, ProviderFailed, Tokens
from accounts.connections.provider_settings import OAuthProvider
from accounts.models import Connection
from accounts.models.connections import REFUSED_FOR_LONG
from config.platform.db.connections import release_connection
from config.platform.encryption import encrypt
from config.platform.runtime.clock import clock_from

LEASE = timedelta(seconds=25)
# A short outage of the database must not lose a refresh token that only this process knows.
KEEPING_PAUSES = (0.2, 1.0, 3.0)
LONGEST_PAUSE = timedelta(hours=1)
OPEN = Q(lapsed_at=None) | Q(lapse=Connection.Lapse.UNEXPLAINED)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshLease:
    """The right to renew the tokens of one generation of a connection."""

    connection: Connection
    fence: int

    def mine(self) -> QuerySet[Connection]:
        """The row, unless another refresh has begun or other tokens have been stored."""
        return of_generation(self.connection).filter(fence=self.fence)


def take(connection: Connection) -> RefreshLease | None:
    """Takes the lease of this generation; returns None if another process has it or the row has changed."""
    free = Q(leased_until__isnull=True) | Q(leased_until__lte=Now())
    with transaction.atomic():
        taken = (
            of_generation(connection)
            .filter(free, OPEN)
            .update(
                fence=F("fence") + 1,
                leased_until=Now() + LEASE,
                # The previous holder never ended its lease: a response may have been lost.
                answer_lost=Case(
                    When(leased_until__isnull=False, then=Value(True)), default=F("answer_lost")
                ),
            )
        )
        if not taken:
            return None
        fence = Connection.objects.values_list("fence", flat=True).get(pk=connection.pk)
    return RefreshLease(connection=connection, fence=fence)


def refresh(lease: RefreshLease, *, provider: OAuthProvider, by: Actor, now: datetime) -> bool:
    """Renews the tokens and stores the result; returns whether there are new tokens.

    Raises ``ProviderFailed`` after a failure, which leaves the grant unchanged, unless the person is asked by now.
    """
    connection = lease.connection
    assert connection.refresh_token is not None
    refresh_token = connection.unseal("refresh_token").decode()
    release_connection()
    clock = clock_from(now)
    try:
        tokens = oauth.renew(provider, refresh_token=refresh_token, now=now)
    except GrantRefused:
        _lapse(lease, by=by, now=now)
    except ProviderFailed as failure:
        if not _note(lease, failure, by=by, now=clock()):
            raise
    else:
        if _store(connection, tokens, now=now):
            return True
        _give_up(connection, tokens, provider=provider, now=now)
    return False


def of_generation(connection: Connection) -> QuerySet[Connection]:
    """The row of a connection, unless its tokens have changed since they were read."""
    return Connection.objects.filter(
        pk=connection.pk, generation=connection.generation, connected_at=connection.connected_at
    )


def lapse(
    rows: QuerySet[Connection],
    connection: Connection,
    why: Connection.Lapse,
    *,
    by: Actor,
    now: datetime,
) -> bool:
    """Marks a connection that only the person can renew; returns False if it has changed meanwhile."""
    with transaction.atomic():
        lapsed = rows.filter(OPEN).update(lapsed_at=now, lapse=why, leased_until=None)
        if lapsed:
            after = {"provider": connection.provider, "why": why.value}
            record(
                "connection:reauthorisation_needed", connection.user, by=by, now=now, after=after
            )
    return bool(lapsed)


def _store(connection: Connection, tokens: Tokens, *, now: datetime) -> bool:
    """Stores new tokens, with retries while the database is unavailable; returns False for a late response."""
    columns = token_columns(connection, tokens, now=now)
    if tokens.scopes is None:
        del columns["scopes"]
    for pause in KEEPING_PAUSES:
        try:
            return bool(of_generation(connection).update(**columns, generation=F("generation") + 1))
        except (OperationalError, InterfaceError):
            log.warning("connection_tokens_not_kept_yet")
            release_connection()
            time.sleep(pause)
    return bool(of_generation(connection).update(**columns, generation=F("generation") + 1))


def token_columns(connection: Connection, tokens: Tokens, *, now: datetime) -> dict[str, Any]:
    """The values of the columns that new tokens set or clear."""
    access, refresh = (connection.place(each) for each in ("access_token", "refresh_token"))
    return {
        "access_token": encrypt(tokens.access.encode(), place=access),
        "refresh_token": encrypt(tokens.refresh.encode(), place=refresh)
        if tokens.refresh
        else None,
        "scopes": tokens.scopes or [],
        "refreshed_at": now,
        "expires_at": tokens.expires_at,
        "lapsed_at": None,
        "lapse": "",
        "failed_at": None,
        "failure": "",
        "ask_again_at": None,
        "refused_since": None,
        "leased_until": None,
        "answer_lost": False,
    }


def _give_up(
    connection: Connection, tokens: Tokens, *, provider: OAuthProvider, now: datetime
) -> None:
    """Revokes tokens of a grant that was ended or replaced meanwhile.

    If the grant still exists, the response is late: another refresh came first, and a revocation would end its tokens.
    """
    now_there = Connection.objects.filter(user=connection.user_id, provider=connection.provider)
    standing = now_there.values_list("pk", "connected_at").first()
    if standing == (connection.pk, connection.connected_at):
        log.warning("connection_answer_came_late", extra={"provider": connection.provider})
    elif (standing is None or not provider.one_grant) and provider.revocation_endpoint:
        disconnecting.revoke_later(
            user_id=connection.user_id,
            provider=connection.provider,
            tokens=[tokens.refresh, tokens.access],
            now=now,
        )


def _lapse(lease: RefreshLease, *, by: Actor, now: datetime) -> None:
    # Only for this generation and lease: a refusal may be due to the success of a concurrent refresh.
    lost = of_generation(lease.connection).filter(answer_lost=True).exists()
    why = Connection.Lapse.ANSWER_LOST if lost else Connection.Lapse.REFUSED
    lapse(lease.mine(), lease.connection, why, by=by, now=now)


def _note(lease: RefreshLease, failure: ProviderFailed, *, by: Actor, now: datetime) -> bool:
    """Stores the provider's failure and releases the lease; returns whether the person is asked."""
    connection = lease.connection
    if failure.kind == Connection.Failure.CLIENT_REFUSED:
        log.error("connection_client_refused", extra={"provider": connection.provider})
    noted: dict[str, Any] = {"answer_lost": True} if failure.sent else {}
    lasted = connection.refused_for(at=now)
    if failure.unknown:
        noted["refused_since"] = now - lasted
        failure.pause = max(failure.pause, ceil(min(lasted, LONGEST_PAUSE).total_seconds()))
    elif not connection.is_unexplained:
        noted["refused_since"] = None
    lease.mine().update(
        failed_at=now,
        failure=failure.kind,
        ask_again_at=now + timedelta(seconds=failure.pause),
        leased_until=None,
        **noted,
    )
    if connection.is_unexplained or not failure.unknown or lasted < REFUSED_FOR_LONG:
        return connection.is_unexplained
    log.error("connection_refusal_unexplained", extra={"provider": connection.provider})
    return lapse(lease.mine(), connection, Connection.Lapse.UNEXPLAINED, by=by, now=now)
