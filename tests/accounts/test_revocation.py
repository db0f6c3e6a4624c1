"""The kill switch, and the log that cannot be changed."""

from datetime import datetime

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from rest_framework.test import APIClient

from accounts.audit import Actor, record
from accounts.models import AuditEvent, RefreshToken, Session, User
from accounts.revocation import revoke_all
from accounts.sign_in import Device, TokenPair, sign_in
from tests.conftest import PASSWORD

pytestmark = pytest.mark.django_db


def test_everything_a_user_holds_is_dead_and_a_login_right_after_works(
    signed_in: APIClient, pair: TokenPair, user: User, by: Actor, now: datetime
) -> None:
    sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
    assert revoke_all(user_id=user.pk, by=by, reason="laptop stolen", now=now) == 2
    assert signed_in.get("/v1/auth/me").json()["code"] == "access_revoked"
    assert not RefreshToken.objects.unrevoked().exists()
    assert set(Session.objects.values_list("ended_by", flat=True)) == {"revoked"}

    fresh = sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
    signed_in.credentials(HTTP_AUTHORIZATION=f"Bearer {fresh.access}")
    assert signed_in.get("/v1/auth/me").status_code == 200

    event = AuditEvent.objects.get(action="user:tokens_revoked")
    assert (event.reason, event.target, event.after) == (
        "laptop stolen",
        user.email,
        {"sessions_ended": 2},
    )


def test_others_are_left_alone(pair: TokenPair, user: User, by: Actor, now: datetime) -> None:
    other = User.objects.create_user("bob@acme.test", PASSWORD, client=user.client)
    revoke_all(user_id=other.pk, by=by, reason="test", now=now)
    assert RefreshToken.objects.unrevoked().count() == 1


def test_the_command_is_the_same_switch(pair: TokenPair, user: User, capsys) -> None:
    call_command("revoke_tokens", user.email.upper(), reason="test")
    assert "1 sessions of ada@acme.test ended" in capsys.readouterr().out
    assert AuditEvent.objects.get(action="user:tokens_revoked").actor == "manage.py revoke_tokens"
    with pytest.raises(CommandError):
        call_command("revoke_tokens", "nobody@acme.test", reason="test")


class TestAuditLog:
    @pytest.fixture
    def event(self, by: Actor, now: datetime) -> AuditEvent:
        record("client:created", by=by, now=now)
        return AuditEvent.objects.get()

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE accounts_auditevent SET actor = 'someone else'",
            "DELETE FROM accounts_auditevent",
        ],
    )
    def test_the_database_itself_refuses_changes(self, event: AuditEvent, statement: str) -> None:
        with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
        assert AuditEvent.objects.get().actor == event.actor

    def test_only_pruning_which_says_so_may_delete(self, event: AuditEvent) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL accounts.pruning_audit = 'on'")
            cursor.execute("DELETE FROM accounts_auditevent")
        assert not AuditEvent.objects.exists()

    def test_an_action_is_a_subject_and_a_verb(self, by: Actor, now: datetime) -> None:
        with pytest.raises(IntegrityError), transaction.atomic():
            record("Something happened", by=by, now=now)
