"""Begins an authorisation, and checks the state that its redirect returns.

The state is 256 random bits, stored as a hash, good for one use within ten minutes by the same person in the same
session for the same provider. The redirect's port and the PKCE verifier are stored beside it, so a code of another
authorisation cannot be redeemed.
"""

import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from accounts.connections import oauth
from accounts.connections.oauth import AuthorisationRequest
from accounts.connections.providers import find
from accounts.hashers import plain_hash
from accounts.models import ConnectionAttempt
from accounts.sessions.revocation import lock_user
from config.platform.encryption import CannotDecrypt
from config.platform.problems.problem import Fault, InvalidRequest, Problem

LIFETIME = timedelta(minutes=10)
# Per person; a further authorisation replaces the oldest.
MOST_AT_A_TIME = 10
HIGHEST_PORT = 65535
PORT = re.compile(r"http://127\.0\.0\.1:([1-9][0-9]{0,4})/oauth/", re.ASCII)


class StateInvalid(Problem):
    """The one answer to a state that is unknown, used, expired, or another person's."""

    code = "state_invalid"
    status = 400
    title = "Authorisation not recognised"
    default_detail = (
        "This authorisation is unknown, has already been used, or took too long. Start again."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The address for the person's browser, and the state that the redirect will return."""

    authorization_url: str = field(repr=False)
    state: str = field(repr=False)
    expires_at: datetime


def begin(
    *, user_id: UUID, session_id: UUID, provider: str, redirect_uri: str, now: datetime
) -> Begun:
    """Begins an authorisation whose redirect goes to a local port of the shell.

    Raises ``ProviderNotConfigured``, and ``InvalidRequest`` for any redirect but
    ``http://127.0.0.1:<port>/oauth/<provider>/callback``.
    """
    check_redirect(redirect_uri, provider=provider)
    party = find(provider)
    asked = AuthorisationRequest(redirect_uri, secrets.token_urlsafe(32), secrets.token_urlsafe(64))
    expires_at = now + LIFETIME
    with transaction.atomic():
        # Without the lock two concurrent calls could exceed the limit.
        lock_user(user_id)
        _make_room(user_id, now=now)
        attempt = ConnectionAttempt(
            state_hash=plain_hash(asked.state),
            user_id=user_id,
            session_id=session_id,
            provider=provider,
            redirect_uri=redirect_uri,
            began_at=now,
            expires_at=expires_at,
        )
        attempt.seal("verifier", asked.verifier.encode())
        attempt.save(force_insert=True)
    url = oauth.authorization_url(party, asked)
    return Begun(authorization_url=url, state=asked.state, expires_at=expires_at)


def check_redirect(redirect_uri: str, *, provider: str) -> None:
    """Raises ``InvalidRequest`` unless this is exactly the shell's callback."""
    found = PORT.match(redirect_uri)
    port = int(found[1]) if found else 0
    exact = f"http://127.0.0.1:{port}/oauth/{provider}/callback"
    if redirect_uri != exact or not 1 <= port <= HIGHEST_PORT:
        detail = f"Must be http://127.0.0.1:<port>/oauth/{provider}/callback."
        raise InvalidRequest(errors=[Fault("/redirect_uri", "invalid", detail)])


def consume(
    *, user_id: UUID, session_id: UUID, provider: str, state: str, now: datetime
) -> AuthorisationRequest:
    """The request of an authorisation, deleted by this use; of several concurrent uses one succeeds.

    Raises ``StateInvalid``. A use by another person or session does not consume the state.
    """
    attempts = ConnectionAttempt.objects.filter(
        state_hash=plain_hash(state), user=user_id, session=session_id, provider=provider
    )
    attempt = attempts.filter(expires_at__gt=now).first()
    if attempt is None or not attempts.filter(pk=attempt.pk).delete()[0]:
        raise StateInvalid
    try:
        verifier = attempt.unseal("verifier").decode()
    except CannotDecrypt:
        # The encryption key was removed within these ten minutes.
        raise StateInvalid from None
    return AuthorisationRequest(attempt.redirect_uri, state, verifier)


def forget_expired(*, now: datetime) -> int:
    """Deletes expired authorisations; returns their number."""
    return ConnectionAttempt.objects.filter(expires_at__lte=now).delete()[0]


def _make_room(user_id: UUID, *, now: datetime) -> None:
    theirs = ConnectionAttempt.objects.filter(user=user_id)
    kept = theirs.filter(expires_at__gt=now).order_by("-pk")[: MOST_AT_A_TIME - 1]
    theirs.exclude(pk__in=list(kept.values_list("pk", flat=True))).delete()
