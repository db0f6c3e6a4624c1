"""Signing in."""

from datetime import datetime, timedelta
from unittest.mock import patch

import pytest
from django.contrib.auth.hashers import check_password

from accounts import sign_in as module
from accounts.access_tokens import AccessToken
from accounts.models import AuditEvent, Client, RefreshToken, Session, User
from accounts.sign_in import NOBODYS_PASSWORD, Device, InvalidCredentials, TokenPair, sign_in
from tests.conftest import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("signing_key")
def test_a_login_starts_a_session_with_its_first_token(user: User, now: datetime) -> None:
    device = Device(fingerprint="desk-7", address="192.0.2.7", request_id="req-login")
    pair = sign_in(email=user.email, password=PASSWORD, device=device, now=now)

    session = Session.objects.get()
    token = RefreshToken.objects.get()
    assert (session.user_id, session.device_fp, session.started_at) == (user.pk, "desk-7", now)
    assert session.started_from == session.last_used_from == "192.0.2.7"
    assert (token.session_id, token.user_id, token.issued_at) == (session.pk, user.pk, now)
    assert token.expires_at == now + timedelta(days=30)
    assert token.token_hash.startswith("$argon2id$")
    assert pair.refresh not in token.token_hash
    assert pair.expires_in == 3600
    event = AuditEvent.objects.get(action="session:started")
    assert (event.actor, event.address, event.request_id) == (user.email, "192.0.2.7", "req-login")


def test_the_access_token_says_whose_it_is_and_nothing_else(pair: TokenPair, user: User) -> None:
    token = AccessToken(pair.access.encode())
    session = Session.objects.get()
    assert set(token.payload) == {
        "iss", "sub", "cid", "plan", "entitlements", "iat", "exp", "kid", "sid", "ver",
    }  # fmt: skip
    assert token.payload["sub"] == str(user.pk)
    assert token.payload["cid"] == str(user.client_id)
    assert token.payload["plan"] == "Starter"
    assert token.payload["sid"] == str(session.pk)
    assert token.payload["exp"] - token.payload["iat"] == 3600


@pytest.mark.usefixtures("signing_key")
def test_emails_compare_case_insensitively(user: User, now: datetime) -> None:
    assert sign_in(email="ADA@Acme.Test", password=PASSWORD, device=Device(), now=now).access


@pytest.mark.usefixtures("signing_key")
@pytest.mark.parametrize("case", ["unknown", "wrong", "disabled", "client-less"])
def test_every_refusal_is_the_same_one(case: str, user: User, now: datetime) -> None:
    email, password = user.email, PASSWORD
    if case == "unknown":
        email = "nobody@acme.test"
    elif case == "wrong":
        password = "wrong"
    elif case == "disabled":
        User.objects.update(is_active=False)
    else:
        User.objects.update(client=None)
    with (
        patch.object(module, "check_password", wraps=check_password) as checked,
        pytest.raises(InvalidCredentials) as refusal,
    ):
        sign_in(email=email, password=password, device=Device(), now=now)
    assert (refusal.value.detail, refusal.value.members) == (InvalidCredentials.default_detail, {})
    assert checked.call_count == 1, "one check of a password, whatever the reason"
    assert not Session.objects.exists()


def test_nobodys_password_costs_what_a_real_one_does(user: User) -> None:
    assert NOBODYS_PASSWORD.split("$")[:4] == user.password.split("$")[:4]


@pytest.mark.usefixtures("signing_key")
def test_what_changes_while_the_password_is_checked_refuses_the_login(
    user: User, now: datetime
) -> None:
    def changed_meanwhile(password: str, encoded: str) -> bool:
        right = check_password(password, encoded)
        user.set_password("another one entirely")
        user.save()
        return right

    with (
        patch.object(module, "check_password", changed_meanwhile),
        pytest.raises(InvalidCredentials),
    ):
        sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
    assert not Session.objects.exists()


@pytest.mark.usefixtures("signing_key")
def test_a_session_with_an_end_bounds_its_tokens(user: User, now: datetime, settings) -> None:
    settings.SESSION_DAYS = 7
    sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
    assert RefreshToken.objects.get().expires_at == now + timedelta(days=7)


def test_a_client_with_a_user_cannot_be_deleted(user: User, organisation: Client) -> None:
    with pytest.raises(Exception, match="protected"):
        organisation.delete()
