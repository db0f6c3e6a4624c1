"""Encryption keys rotate: what is old goes under the newest, and what is newer than that stays."""

from datetime import datetime
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.core.management import call_command
from django.db.models import BinaryField, F

from accounts.audit import Actor
from accounts.connections.authorisation import begin
from accounts.connections.disconnecting import revoke_later, tokens_of
from accounts.connections.reencrypting import encrypted_columns, reencrypt, unbound
from accounts.keys.signing_keys import reencrypt_signing_keys
from accounts.models import Client, Connection, Session, SigningKey, User
from config.platform.encryption import BOUND, CannotDecrypt
from tests.accounts.connections.conftest import REDIRECT
from tests.test_architecture import FLOORS

pytestmark = pytest.mark.django_db


class Keys:
    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def listed(self) -> list[str]:
        return list(self.keys)


def test_the_old_key_is_needed_no_more_after_it(
    connection: Connection, user: User, session: Session, by: Actor, now: datetime, settings: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    begin(user_id=user.pk, session_id=session.pk, provider="sheets", redirect_uri=REDIRECT, now=now)
    revoke_later(user_id=user.pk, provider="sheets", tokens=["r", None], now=now)
    old, new = settings.ENCRYPTION_KEYS.listed()[0], Fernet.generate_key().decode()
    assert reencrypt() == (0, 0)
    settings.ENCRYPTION_KEYS = Keys(new, old)
    call_command("reencrypt_connections")
    assert "4 moved under the newest encryption key, 0 are" in capsys.readouterr().out
    settings.ENCRYPTION_KEYS = Keys(new)
    assert tokens_of(Connection.objects.get()) == ["refresh-1", "access-1"]
    assert reencrypt() == (0, 0)


def test_a_value_that_no_key_opens_stays_and_is_counted(
    connection: Connection, settings: Any
) -> None:
    before = settings.ENCRYPTION_KEYS
    settings.ENCRYPTION_KEYS = Keys(Fernet.generate_key().decode())
    assert reencrypt() == (0, 2)
    settings.ENCRYPTION_KEYS = before
    assert tokens_of(Connection.objects.get()) == ["refresh-1", "access-1"]


def test_a_value_bound_to_no_row_is_read_and_bound_by_it(
    connection: Connection, signing_key: None, settings: Any, by: Actor, now: datetime,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """As releases before stored them."""
    fernet = Fernet(settings.ENCRYPTION_KEYS.listed()[0])
    Connection.objects.update(
        access_token=fernet.encrypt(b"access-1"), refresh_token=fernet.encrypt(b"refresh-1")
    )
    SigningKey.objects.update(private_key=fernet.encrypt(b"a key that signs"))
    assert tokens_of(Connection.objects.get()) == ["refresh-1", "access-1"]
    assert unbound(at=now) == 3
    call_command("reencrypt_connections")
    said = capsys.readouterr().out
    assert "2 moved" in said
    assert "1 values, signing keys included, are of earlier releases" in said
    reencrypt_signing_keys(by=by, now=now)
    assert unbound(at=now) == 0
    assert bytes(Connection.objects.get().access_token).startswith(BOUND)
    assert tokens_of(Connection.objects.get()) == ["refresh-1", "access-1"]
    assert reencrypt() == (0, 0)


def test_tokens_that_are_moved_to_another_person_provider_or_column_open_nothing(
    connection: Connection, organisation: Client, by: Actor, now: datetime
) -> None:
    other = User.objects.create_user("bert@acme.test", client=organisation)
    for moved in ({"user": other}, {"provider": "another"}):
        Connection.objects.filter(pk=connection.pk).update(**moved)
        with pytest.raises(CannotDecrypt):
            tokens_of(Connection.objects.get())
        Connection.objects.filter(pk=connection.pk).update(
            user=connection.user, provider=connection.provider
        )
    assert tokens_of(Connection.objects.get()) == ["refresh-1", "access-1"]
    Connection.objects.update(access_token=F("refresh_token"))
    with pytest.raises(CannotDecrypt):
        tokens_of(Connection.objects.get())
    assert reencrypt() == (0, 1)


def test_every_column_of_bytes_is_encrypted_again_or_is_no_secret() -> None:
    found = {
        f"{model._meta.label}.{field.name}"
        for model in apps.get_models()
        if model._meta.app_label in FLOORS
        for field in model._meta.get_fields()
        if isinstance(field, BinaryField)
    }
    known = {
        f"{model._meta.label}.{name}" for model, names in encrypted_columns() for name in names
    }
    assert found - known == {
        # Encrypted again by a command of its own.
        "accounts.SigningKey.private_key",
        # Encrypted under the token that is presented.
        "accounts.RefreshToken.retry_box",
        "llmproxy.PersonalKey.hash",
        "releases.AppVersion.signature",
        "releases.Publication.signature",
        "releases.ShellRelease.manifest",
    }
    assert known <= found
