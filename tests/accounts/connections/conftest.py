"""A third party that can be connected, and a connection to it."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from accounts.audit import Actor
from accounts.connections.authorisation import begin
from accounts.connections.grants import complete
from accounts.models import Connection, Session, User
from tests.accounts.connections.party import Party, running_party, tokens

REDIRECT = "http://127.0.0.1:5000/oauth/sheets/callback"


@pytest.fixture
def party(settings: Any) -> Iterator[Party]:
    """Known as ``sheets``."""
    with running_party() as party:
        configure(settings, sheets=party.provider())
        party.answers = [tokens(1)]
        yield party


def configure(settings: Any, **providers: Any) -> None:
    settings.OAUTH_PROVIDERS = lambda: json.dumps(providers)


@pytest.fixture
def session(user: User, now: datetime) -> Session:
    return Session.objects.create(user=user, started_at=now, last_used_at=now)


@pytest.fixture
def connection(party: Party, user: User, session: Session, by: Actor, now: datetime) -> Connection:
    """Made two hours ago, so that its access token is over."""
    return connected(user, session, by=by, now=now - timedelta(hours=2))


def connected(user: User, session: Session, *, by: Actor, now: datetime) -> Connection:
    who: dict[str, Any] = {"user_id": user.pk, "session_id": session.pk, "provider": "sheets"}
    begun = begin(**who, redirect_uri=REDIRECT, now=now)
    return complete(**who, code="a-code", state=begun.state, issuer=None, by=by, now=now)
