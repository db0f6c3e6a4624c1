"""Signing in."""

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from argon2 import PasswordHasher
from django.contrib.auth.hashers import check_password, make_password
from django.db import OperationalError, connection

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, RefreshToken, Session, User
from accounts.people.users import add_users, change_email
from accounts.sessions import sign_in as module
from accounts.sessions.access_tokens import AccessToken
from accounts.sessions.sign_in import (
    NOBODYS_PASSWORD,
    Device,
    InvalidCredentials,
    TokenPair,
    sign_in,
)
from config.platform.problems.problem import ServiceUnavailable
from tests.conftest import PASSWORD

pytestmark = pytest.mark.django_db
BY = Actor(name="operator@example.test")


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


def test_a_token_stored_without_a_time_was_issued_when_it_was_stored(pair: TokenPair) -> None:
    first, before = RefreshToken.objects.get(), datetime.now(UTC)
    RefreshToken.objects.update(revoked_at=before)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO accounts_refreshtoken (id, user_id, session_id, token_hash, device_fp, expires_at)"
            " SELECT gen_random_uuid(), user_id, session_id, token_hash, device_fp, expires_at"
            " FROM accounts_refreshtoken"
        )
    assert before <= RefreshToken.objects.exclude(pk=first.pk).get().issued_at <= datetime.now(UTC)


def test_the_access_token_identifies_its_person_and_contains_nothing_else(
    pair: TokenPair, user: User
) -> None:
    token = AccessToken(pair.access.encode())
    session = Session.objects.get()
    assert set(token.payload) == {
        "iss", "sub", "cid", "plan", "entitlements", "iat", "exp", "kid", "sid", "ver", "jti",
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
def test_a_change_while_the_password_is_checked_refuses_the_login(
    user: User, now: datetime
) -> None:
    def changed_meanwhile(password: str, encoded: str, renew: Any = None) -> bool:
        right = check_password(password, encoded, renew)
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
@pytest.mark.parametrize("is_taken", [False, True])
def test_an_email_that_changes_while_the_password_is_checked_is_nobodys_to_sign_in_with(
    user: User, now: datetime, is_taken: bool
) -> None:
    was, organisation = user.email, user.client

    def changed_meanwhile(password: str, encoded: str, renew: Any = None) -> bool:
        right = check_password(password, encoded, renew)
        if User.objects.filter(email=was, pk=user.pk).exists():
            change_email(user_id=user.pk, email="countess@acme.test", reason="x", by=BY, now=now)
            if is_taken:
                add_users(emails=[was], client=organisation, by=BY, now=now)
        return right

    with (
        patch.object(module, "check_password", changed_meanwhile),
        pytest.raises(InvalidCredentials),
    ):
        sign_in(email=was, password=PASSWORD, device=Device(), now=now)
    assert not Session.objects.exists()
    assert not AuditEvent.objects.filter(action="session:started").exists()
    assert sign_in(email="countess@acme.test", password=PASSWORD, device=Device(), now=now).access


@pytest.mark.usefixtures("signing_key")
def test_a_session_with_an_end_bounds_its_tokens(user: User, now: datetime, settings) -> None:
    settings.SESSION_DAYS = 7
    sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
    assert RefreshToken.objects.get().expires_at == now + timedelta(days=7)


def test_a_client_with_a_user_cannot_be_deleted(user: User, organisation: Client) -> None:
    with pytest.raises(Exception, match="protected"):
        organisation.delete()


def old_hash(user: User) -> str:
    """The person's password as it was hashed when a hash was made in less time."""
    old = f"argon2{PasswordHasher(time_cost=1, memory_cost=8192, parallelism=1).hash(PASSWORD)}"
    User.objects.filter(pk=user.pk).update(password=old)
    return old


@pytest.mark.usefixtures("signing_key")
def test_a_hash_of_older_settings_is_renewed_by_a_right_password_alone(
    user: User, now: datetime
) -> None:
    old = old_hash(user)
    with pytest.raises(InvalidCredentials):
        sign_in(email=user.email, password="wrong", device=Device(), now=now)
    assert User.objects.get().password == old
    assert sign_in(email=user.email, password=PASSWORD, device=Device(), now=now).access
    renewed = User.objects.get().password
    assert "m=19456,t=2,p=1" in renewed
    assert check_password(PASSWORD, renewed)


@pytest.mark.usefixtures("signing_key")
def test_renewing_does_not_bring_back_a_password_that_changed_meanwhile(
    user: User, now: datetime
) -> None:
    old_hash(user)

    def changed_meanwhile(password: str) -> str:
        User.objects.update(password="changed")
        return make_password(password)

    with patch.object(module, "make_password", changed_meanwhile):
        assert sign_in(email=user.email, password=PASSWORD, device=Device(), now=now).access
    assert User.objects.get().password == "changed"


@pytest.mark.usefixtures("signing_key")
def test_a_hash_that_another_login_renews_meanwhile_keeps_nobody_out(
    user: User, now: datetime
) -> None:
    old_hash(user)

    def renewed_meanwhile(password: str, encoded: str, renew: Any = None) -> bool:
        right = check_password(password, encoded, renew)
        if encoded == User.objects.get().password and "m=8192" in encoded:
            User.objects.update(password=make_password(PASSWORD))
        return right

    with patch.object(module, "check_password", renewed_meanwhile):
        assert sign_in(email=user.email, password=PASSWORD, device=Device(), now=now).access
    assert "m=19456" in User.objects.get().password


@pytest.mark.usefixtures("signing_key")
@pytest.mark.parametrize("failure", [ServiceUnavailable, OperationalError])
def test_a_hash_that_cannot_be_renewed_just_now_keeps_nobody_out(
    user: User, now: datetime, failure: type[Exception]
) -> None:
    old = old_hash(user)
    with patch.object(module, "make_password", side_effect=failure):
        assert sign_in(email=user.email, password=PASSWORD, device=Device(), now=now).access
    assert User.objects.get().password == old
