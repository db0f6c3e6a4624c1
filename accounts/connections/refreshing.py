"""Renewing a connection's access token: one refresh at a time, by lease, with nothing held while the provider is asked.

The lease is the row's ``leased_until`` and ``fence``; the database's clock decides, as the only one that all
processes share. It outlasts the question to the provider (``exchange.MOST_SECONDS``), so a second question with
the same refresh token, which many providers take for theft, is not asked while the first may be answered.

What comes back is kept under the ``generation`` that was asked for. Whoever comes late finds a newer one and
changes nothing. The old refresh token stays until the commit that keeps the new one. Between the provider's
answer and that commit a process can die, and then a provider that rotates has the only copy of what it gave:
the next refresh is tried with the old token, and where that is refused ``answer_lost`` tells operators why.
"""

import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.db.models.functions import Now

from accounts.audit import Actor, record
from accounts.connections import disconnecting, oauth
from accounts.connections.oauth import GrantRefused, ProviderFailed, Tokens
from accounts.connections.provider_settings import OAuthProvider
from accounts.models import Connection
from config.clock import clock_from
from config.db.connections import release_connection
from config.encryption import decrypt, encrypt

LEASE = timedelta(seconds=25)
# A database that is away for a moment must not cost a refresh token that only this process knows.
KEEPING_PAUSES = (0.2, 1.0, 3.0)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to ask the provider for the next tokens of one generation of a connection."""

    connection: Connection
    fence: int

    def mine(self) -> QuerySet[Connection]:
        """The row, as long as no other refresh has begun and no other tokens have been kept."""
        return of_generation(self.connection).filter(fence=self.fence)


def take(connection: Connection) -> Lease | None:
    """The lease for this generation of a connection; None where another has it, or all has changed."""
    free = Q(leased_until__isnull=True) | Q(leased_until__lte=Now())
    with transaction.atomic():
        taken = (
            of_generation(connection)
            .filter(free, lapsed_at=None)
            .update(
                fence=F("fence") + 1,
                leased_until=Now() + LEASE,
                # Whoever had it before never ended it: that answer may have come, and is lost.
                answer_lost=Case(
                    When(leased_until__isnull=False, then=Value(True)), default=F("answer_lost")
                ),
            )
        )
        if not taken:
            return None
        fence = Connection.objects.values_list("fence", flat=True).get(pk=connection.pk)
    return Lease(connection=connection, fence=fence)


def refresh(lease: Lease, *, provider: OAuthProvider, by: Actor, now: datetime) -> bool:
    """Asks the provider and keeps what it says: tokens (True), that the grant is over, or that it failed.

    Raises ``ProviderFailed`` where it failed; then the grant stays as it was.
    """
    connection = lease.connection
    assert connection.refresh_token is not None
    refresh_token = decrypt(bytes(connection.refresh_token)).decode()
    release_connection()
    clock = clock_from(now)
    try:
        tokens = oauth.renew(provider, refresh_token=refresh_token, now=now)
    except GrantRefused:
        _lapse(lease, by=by, now=now)
    except ProviderFailed as failure:
        _note(lease, failure, now=clock())
        raise
    else:
        if _keep(connection, tokens, now=now):
            return True
        _give_up(connection, tokens, provider=provider, now=now)
    return False


def of_generation(connection: Connection) -> QuerySet[Connection]:
    """The row of a connection while it still has the tokens that were read."""
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
    """Marks a connection as one that only the person can renew; False where it has changed meanwhile."""
    with transaction.atomic():
        lapsed = rows.filter(lapsed_at=None).update(lapsed_at=now, lapse=why, leased_until=None)
        if lapsed:
            record(
                "connection:reauthorisation_needed",
                by=by,
                now=now,
                target=connection.user,
                after={"provider": connection.provider, "why": why.value},
            )
    return bool(lapsed)


def _keep(connection: Connection, tokens: Tokens, *, now: datetime) -> bool:
    """Commits new tokens, trying for some seconds where the database is away. False for a late answer."""
    kept = held(tokens, now=now)
    if tokens.scopes is None:
        del kept["scopes"]
    for pause in KEEPING_PAUSES:
        try:
            return bool(of_generation(connection).update(**kept, generation=F("generation") + 1))
        except (OperationalError, InterfaceError):
            log.warning("connection_tokens_not_kept_yet")
            release_connection()
            time.sleep(pause)
    return bool(of_generation(connection).update(**kept, generation=F("generation") + 1))


def held(tokens: Tokens, *, now: datetime) -> dict[str, Any]:
    """The columns that new tokens fill, and those that they clear."""
    return {
        "access_token": encrypt(tokens.access.encode()),
        "refresh_token": encrypt(tokens.refresh.encode()) if tokens.refresh else None,
        "scopes": tokens.scopes or [],
        "refreshed_at": now,
        "expires_at": tokens.expires_at,
        "lapsed_at": None,
        "lapse": "",
        "failed_at": None,
        "failure": "",
        "ask_again_at": None,
        "leased_until": None,
        "answer_lost": False,
    }


def _give_up(
    connection: Connection, tokens: Tokens, *, provider: OAuthProvider, now: datetime
) -> None:
    """Tokens of a grant that was ended or replaced meanwhile are nobody's, and revoked.

    Of a grant that goes on, they are an answer that came too late: another refresh was answered first, and to
    revoke anything would end what that one got.
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


def _lapse(lease: Lease, *, by: Actor, now: datetime) -> None:
    # Only of what was asked about, and only if nobody else asks: a refusal may be due to the other's success.
    lost = of_generation(lease.connection).filter(answer_lost=True).exists()
    why = Connection.Lapse.ANSWER_LOST if lost else Connection.Lapse.REFUSED
    lapse(lease.mine(), lease.connection, why, by=by, now=now)


def _note(lease: Lease, failure: ProviderFailed, *, now: datetime) -> None:
    """Keeps how the provider failed, and gives the lease back."""
    if failure.kind == Connection.Failure.CLIENT_REFUSED:
        log.error("connection_client_refused", extra={"provider": lease.connection.provider})
    lost = {"answer_lost": True} if failure.sent else {}
    lease.mine().update(
        failed_at=now,
        failure=failure.kind,
        ask_again_at=now + timedelta(seconds=failure.pause),
        leased_until=None,
        **lost,
    )
