"""Beginning an authorisation, and who may end it."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import IntegrityError

from accounts.connections.authorisation import (
    LIFETIME,
    MOST_AT_A_TIME,
    Begun,
    StateInvalid,
    begin,
    check_redirect,
    consume,
    forget_expired,
)
from accounts.connections.oauth import AuthorisationRequest
from accounts.connections.providers import ProviderNotConfigured
from accounts.models import ConnectionAttempt, Session, User
from config.platform.problems.problem import InvalidRequest
from tests.accounts.connections.conftest import REDIRECT
from tests.accounts.connections.party import Party
from tests.conftest import PASSWORD
from tests.races import race

pytestmark = pytest.mark.django_db

Who = dict[str, Any]


@pytest.fixture
def who(party: Party, user: User, session: Session) -> Who:
    return {"user_id": user.pk, "session_id": session.pk, "provider": "sheets"}


def began(who: Who, now: datetime) -> Begun:
    return begin(**who, redirect_uri=REDIRECT, now=now)


def test_an_authorisation_is_recognised_with_its_port_and_verifier(who: Who, now: datetime) -> None:
    begun = began(who, now)
    assert begun.expires_at == now + LIFETIME
    assert len(begun.state) == 43
    asked = consume(**who, state=begun.state, now=now)
    assert (asked.redirect_uri, asked.state) == (REDIRECT, begun.state)
    assert len(asked.verifier) >= 43


def test_the_row_reveals_neither_state_nor_verifier(who: Who, now: datetime) -> None:
    begun = began(who, now)
    row = str(ConnectionAttempt.objects.values().get())
    asked = consume(**who, state=begun.state, now=now)
    assert not [secret for secret in (begun.state, asked.verifier) if secret in row]
    assert begun.state not in repr(begun)


@pytest.mark.parametrize("wrong", ["state", "user_id", "session_id", "provider", "late"])
def test_a_state_is_nothing_in_other_hands_and_not_used_up_by_them(
    who: Who, organisation: Any, now: datetime, wrong: str
) -> None:
    begun = began(who, now)
    given = {**who, "state": begun.state, "now": now}
    other = User.objects.create_user("bob@acme.test", PASSWORD, client=organisation)
    others = Session.objects.create(user=other, started_at=now, last_used_at=now)
    bad = {
        "state": begun.state[:-1] + ("A" if begun.state[-1] != "A" else "B"),
        "user_id": other.pk,
        "session_id": others.pk,
        "provider": "other",
        "late": None,
    }
    spoilt = {**given, "now": now + LIFETIME} if wrong == "late" else {**given, wrong: bad[wrong]}
    with pytest.raises(StateInvalid):
        consume(**spoilt)
    assert consume(**given).state == begun.state
    with pytest.raises(StateInvalid):
        consume(**given)


@pytest.mark.django_db(transaction=True)
def test_a_state_that_many_bring_at_once_lets_one_past(who: Who, now: datetime) -> None:
    for _ in range(5):
        bring: Callable[[], AuthorisationRequest] = partial(
            consume, **who, state=began(who, now).state, now=now
        )
        results = race(*[bring] * 8)
        assert sum(isinstance(each, AuthorisationRequest) for each in results) == 1
        assert sum(isinstance(each, StateInvalid) for each in results) == 7


GOOD = ["1", "80", "5000", "65535"]
BAD = [
    "", "http://127.0.0.1/oauth/sheets/callback", "http://127.0.0.1:0/oauth/sheets/callback",
    "http://127.0.0.1:65536/oauth/sheets/callback", "http://127.0.0.1:080/oauth/sheets/callback",
    "http://127.0.0.1:+80/oauth/sheets/callback", "http://127.0.0.1:٨٠/oauth/sheets/callback",
    "https://127.0.0.1:80/oauth/sheets/callback", "HTTP://127.0.0.1:80/oauth/sheets/callback",
    "http://localhost:80/oauth/sheets/callback", "http://[::1]:80/oauth/sheets/callback",
    "http://127.0.0.2:80/oauth/sheets/callback", "http://127.1:80/oauth/sheets/callback",
    "http://user@127.0.0.1:80/oauth/sheets/callback", "http://127.0.0.1:80@evil.test/oauth/sheets/callback",
    "http://127.0.0.1:80/oauth/other/callback", "http://127.0.0.1:80/oauth/sheets/callback/",
    "http://127.0.0.1:80/oauth/sheets/callback?x=1", "http://127.0.0.1:80/oauth/sheets/callback#x",
    "http://127.0.0.1:80/oauth/x/../sheets/callback", "http://127.0.0.1:80//oauth/sheets/callback",
    "http://127.0.0.1:80/oauth/sheets/call%62ack", " http://127.0.0.1:80/oauth/sheets/callback",
    "http://127.0.0.1:80/oauth/sheets/callback\n", "http://127.0.0.1.evil.test:80/oauth/sheets/callback",
]  # fmt: skip


@pytest.mark.parametrize("port", GOOD)
def test_the_shells_own_callback_is_taken(port: str) -> None:
    check_redirect(f"http://127.0.0.1:{port}/oauth/sheets/callback", provider="sheets")


@pytest.mark.parametrize("address", BAD)
def test_no_other_redirect_is(address: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        check_redirect(address, provider="sheets")
    (fault,) = raised.value.errors
    assert fault.pointer == "/redirect_uri"


def test_a_person_has_only_so_many_under_way(who: Who, now: datetime) -> None:
    states = [began(who, now).state for _ in range(MOST_AT_A_TIME + 2)]
    assert ConnectionAttempt.objects.count() == MOST_AT_A_TIME
    with pytest.raises(StateInvalid):
        consume(**who, state=states[1], now=now)
    assert consume(**who, state=states[2], now=now)


def test_an_authorisation_that_nobody_ended_is_forgotten(who: Who, now: datetime) -> None:
    began(who, now - LIFETIME)
    began(who, now)
    ConnectionAttempt.objects.update(expires_at=now + timedelta(seconds=1))
    assert forget_expired(now=now) == 0
    assert forget_expired(now=now + LIFETIME) == 1
    assert forget_expired(now=now + LIFETIME) == 0


def test_a_provider_that_is_not_set_up_cannot_be_asked(who: Who, now: datetime) -> None:
    redirect = "http://127.0.0.1:80/oauth/other/callback"
    with pytest.raises(ProviderNotConfigured):
        begin(**{**who, "provider": "other"}, redirect_uri=redirect, now=now)
    assert not ConnectionAttempt.objects.exists()


def test_a_verifier_whose_key_is_gone_is_no_verifier(
    who: Who, now: datetime, settings: Any
) -> None:
    state = began(who, now).state

    class Keys:
        def listed(self) -> list[str]:
            return [Fernet.generate_key().decode()]

    settings.ENCRYPTION_KEYS = Keys()
    with pytest.raises(StateInvalid):
        consume(**who, state=state, now=now)


def test_an_attempt_ends_after_it_began(who: Who, now: datetime) -> None:
    began(who, now)
    with pytest.raises(IntegrityError, match="connection_attempt_expires_later"):
        ConnectionAttempt.objects.update(expires_at=now)
