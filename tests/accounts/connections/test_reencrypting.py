"""Encryption keys rotate: what is old goes under the newest, and what is newer than that stays."""

from datetime import datetime
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import call_command

from accounts.audit import Actor
from accounts.connections.authorisation import begin
from accounts.connections.disconnecting import revoke_later, tokens_of
from accounts.connections.reencrypting import reencrypt
from accounts.models import Connection, Session, User
from tests.accounts.connections.conftest import REDIRECT

pytestmark = pytest.mark.django_db


class Keys:
    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def listed(self) -> list[str]:
        return list(self.keys)


def test_after_it_the_old_key_is_needed_no_more(
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


def test_what_no_key_opens_stays_and_is_counted(connection: Connection, settings: Any) -> None:
    before = settings.ENCRYPTION_KEYS
    settings.ENCRYPTION_KEYS = Keys(Fernet.generate_key().decode())
    assert reencrypt() == (0, 2)
    settings.ENCRYPTION_KEYS = before
    assert tokens_of(Connection.objects.get()) == ["refresh-1", "access-1"]
