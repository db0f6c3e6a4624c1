"""Ends connections: at once here, and at the provider by retries until it confirms the revocation.

The transaction that deletes a connection stores its encrypted tokens in a ``ConnectionRevocation``; a job tries the
revocation, and each failure queues the next try. A repeated revocation is harmless. After ``GIVEN_UP_AFTER`` the
retries end, and operators see the revocation in the console.
"""

import json
import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet
from procrastinate.contrib.django import app

from accounts.audit import Actor, record
from accounts.connections import oauth
from accounts.connections.oauth import ProviderFailed
from accounts.connections.providers import ProviderNotConfigured, configured, find
from accounts.models import Connection, ConnectionAttempt, ConnectionRevocation
from config.platform.db.connections import release_connection
from config.platform.encryption import CannotDecrypt
from config.platform.problems.problem import Problem
from config.platform.runtime.clock import clock_from

GIVEN_UP_AFTER = timedelta(days=14)
FIRST_PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(hours=6)
# Much longer than the pause before any queued try.
OVERDUE = timedelta(hours=1)
OVERDUE_AT_A_TIME = 500
BY = Actor(name="the worker")
NOT_CONFIGURED, NOT_READABLE = "not_configured", "not_readable"
# In the order of revocation: revoking a refresh token usually revokes its access tokens too.
HINTS = ("refresh_token", "access_token")

log = logging.getLogger(__name__)


class ConnectionNotFound(Problem):
    code = "connection_not_found"
    status = 404
    title = "Not connected"
    default_detail = "There is no connection to this provider."


def disconnect(*, user_id: UUID, provider: str, by: Actor, now: datetime, reason: str = "") -> None:
    """Deletes a person's connection and has it revoked at the provider. Raises ``ConnectionNotFound``."""
    with transaction.atomic():
        connection = _locked(user_id).filter(provider=provider).first()
        if connection is None:
            raise ConnectionNotFound
        _remove(connection, by=by, now=now, reason=reason)


def disconnect_all(*, user_id: UUID, by: Actor, now: datetime, reason: str = "") -> int:
    """Deletes every connection and open authorisation of a person; returns the number of connections.

    Disabling, deletion and erasure call it in their transaction, before they delete the person's row.
    """
    with transaction.atomic():
        connections = list(_locked(user_id))
        for connection in connections:
            _remove(connection, by=by, now=now, reason=reason)
        ConnectionAttempt.objects.filter(user=user_id).delete()
    return len(connections)


def revoke_later(
    *, user_id: UUID, provider: str, tokens: Sequence[str | None], now: datetime
) -> ConnectionRevocation:
    """Queues the revocation of a grant; ``tokens`` are its refresh token and access token, or None."""
    known = {hint: token for hint, token in zip(HINTS, tokens, strict=True) if token}
    with transaction.atomic():
        row = ConnectionRevocation(provider=provider, user_id=user_id, asked_at=now, due_at=now)
        row.seal("tokens", json.dumps(known).encode())
        row.save(force_insert=True)
        _queue(row.pk, now)
    return row


def tokens_of(connection: Connection) -> list[str | None]:
    """A connection's refresh token and access token. Raises ``CannotDecrypt``."""
    refresh = connection.unseal("refresh_token").decode() if connection.refresh_token else None
    return [refresh, connection.unseal("access_token").decode()]


def is_revocable(provider: str) -> bool:
    """Returns whether a provider supports revocation; a provider that is not configured now may be configured later."""
    known = configured().get(provider)
    return known is None or bool(known.revocation_endpoint)


def revoke(*, revocation_id: int, now: datetime) -> bool:
    """Tries a revocation; returns True, and deletes its row, if the provider confirms it."""
    row = ConnectionRevocation.objects.filter(pk=revocation_id, gave_up_at=None).first()
    if row is None:
        return False
    clock = clock_from(now)
    if failure := _failure_of(row):
        _try_again(row, failure, now=clock())
        return False
    with transaction.atomic():
        if ConnectionRevocation.objects.filter(pk=row.pk).delete()[0]:
            _record("connection:revoked", row, by=BY, now=now)
    return True


def retry(*, revocation_id: int, reason: str, by: Actor, now: datetime) -> bool:
    """Restarts a revocation that was given up; returns False for any other."""
    with transaction.atomic():
        given_up = ConnectionRevocation.objects.filter(pk=revocation_id, gave_up_at__isnull=False)
        if not given_up.update(gave_up_at=None, asked_at=now, due_at=now, attempts=0):
            return False
        row = ConnectionRevocation.objects.get(pk=revocation_id)
        _record("connection:revocation_retried", row, by=by, now=now, reason=reason)
        _queue(row.pk, now)
    return True


def dismiss(*, revocation_id: int, reason: str, by: Actor, now: datetime) -> bool:
    """Deletes a revocation, and with it the last copy of the grant's tokens."""
    with transaction.atomic():
        row = ConnectionRevocation.objects.filter(pk=revocation_id).select_for_update().first()
        if row is None:
            return False
        _record("connection:revocation_dismissed", row, by=by, now=now, reason=reason)
        row.delete()
    return True


def forget_revocations(
    *,
    user_id: UUID,
    provider: str,
    by: Actor,
    now: datetime,
    reason: str,
    of: Collection[str] | None = None,
) -> None:
    """Cancels queued revocations that would end a newer grant: all, or those with tokens ``of`` a set."""
    waiting = ConnectionRevocation.objects.filter(user_id=user_id, provider=provider)
    for row in waiting.select_for_update():
        if of is None or not _tokens_to_revoke(row).isdisjoint(of):
            _record("connection:revocation_dismissed", row, by=by, now=now, reason=reason)
            row.delete()


def _tokens_in(row: ConnectionRevocation) -> dict[str, str]:
    tokens: dict[str, str] = json.loads(row.unseal("tokens"))
    return tokens


def _tokens_to_revoke(row: ConnectionRevocation) -> set[str]:
    try:
        return set(_tokens_in(row).values())
    except CannotDecrypt:
        return set()


def queue_overdue(*, now: datetime) -> int:
    """Queues long overdue revocations again; returns their number."""
    overdue = ConnectionRevocation.objects.filter(gave_up_at=None, due_at__lt=now - OVERDUE)
    ids = list(overdue.order_by("due_at").values_list("pk", flat=True)[:OVERDUE_AT_A_TIME])
    with transaction.atomic():
        ConnectionRevocation.objects.filter(pk__in=ids).update(due_at=now)
        for each in ids:
            _queue(each, now)
    return len(ids)


def _locked(user_id: UUID) -> QuerySet[Connection]:
    rows = Connection.objects.filter(user=user_id).select_related("user")
    return rows.order_by("pk").select_for_update(of=("self",))


def _remove(connection: Connection, *, by: Actor, now: datetime, reason: str) -> None:
    provider, revocable = connection.provider, is_revocable(connection.provider)
    if revocable:
        try:
            tokens = tokens_of(connection)
        except CannotDecrypt:
            revocable = False
        else:
            revoke_later(user_id=connection.user_id, provider=provider, tokens=tokens, now=now)
    connection.delete()
    before, after = (
        {"provider": provider, "scopes": connection.scopes},
        {"to_be_revoked": revocable},
    )
    user = connection.user
    record("connection:removed", user, by=by, now=now, reason=reason, before=before, after=after)


def _failure_of(row: ConnectionRevocation) -> str:
    """Revokes a grant's tokens at the provider; returns "" if it confirms all of them, else a code of the failure."""
    try:
        provider = find(row.provider)
        tokens = _tokens_in(row)
    except ProviderNotConfigured:
        return NOT_CONFIGURED
    except CannotDecrypt:
        return NOT_READABLE
    release_connection()
    if not provider.revocation_endpoint:
        return NOT_CONFIGURED
    try:
        for hint in HINTS:
            if token := tokens.get(hint):
                oauth.revoke(provider, token=token, hint=hint)
    except ProviderFailed as failure:
        return failure.kind.value
    return ""


def _try_again(row: ConnectionRevocation, failure: str, *, now: datetime) -> None:
    """Queues the next try, or gives up after ``GIVEN_UP_AFTER``."""
    waiting = ConnectionRevocation.objects.filter(pk=row.pk, gave_up_at=None)
    due = now + min(FIRST_PAUSE * 4 ** min(row.attempts, 10), LONGEST_PAUSE)
    over = now - row.asked_at >= GIVEN_UP_AFTER
    with transaction.atomic():
        noted = waiting.update(
            attempts=F("attempts") + 1,
            tried_at=now,
            failure=failure,
            due_at=due,
            gave_up_at=now if over else None,
        )
        if noted and over:
            _record("connection:revocation_given_up", row, by=BY, now=now)
        elif noted:
            _queue(row.pk, due)
    if noted and over:
        log.error("connection_revocation_given_up", extra={"provider": row.provider})


def _queue(revocation_id: int, at: datetime) -> None:
    job = app.configure_task("accounts.revoke_connection", queue="connections", schedule_at=at)
    job.defer(revocation_id=revocation_id)


def _record(
    action: str, row: ConnectionRevocation, *, by: Actor, now: datetime, reason: str = ""
) -> None:
    after = {"provider": row.provider, "attempts": row.attempts}
    record(action, by=by, now=now, target_id=row.user_id, reason=reason, after=after)
