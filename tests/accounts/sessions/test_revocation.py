"""The kill switch, and the log that cannot be changed."""

from datetime import datetime, timedelta
from hashlib import sha256
from uuid import UUID

import jwt
import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from rest_framework.test import APIClient

from accounts.audit import Actor, record
from accounts.models import AuditEvent, Client, PasswordLink, RefreshToken, Session, User
from accounts.people.password_links import LinkSpent, find_link
from accounts.sessions import revocation
from accounts.sessions.revocation import revoke_all, revoke_everything
from accounts.sessions.rotation import InvalidRefreshToken, rotate
from accounts.sessions.sign_in import Device, TokenPair, sign_in
from tests.conftest import PASSWORD, Browser
from tests.races import race

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


def test_sessions_of_other_people_are_not_ended(
    pair: TokenPair, user: User, by: Actor, now: datetime
) -> None:
    other = User.objects.create_user("bob@acme.test", PASSWORD, client=user.client)
    revoke_all(user_id=other.pk, by=by, reason="test", now=now)
    assert RefreshToken.objects.unrevoked().count() == 1


def test_the_command_is_the_same_switch(pair: TokenPair, user: User, capsys) -> None:
    call_command("revoke_tokens", user.email.upper(), reason="test")
    assert "1 sessions of ada@acme.test ended" in capsys.readouterr().out
    assert AuditEvent.objects.get(action="user:tokens_revoked").actor == "manage.py revoke_tokens"
    with pytest.raises(CommandError):
        call_command("revoke_tokens", "nobody@acme.test", reason="test")
    with pytest.raises(CommandError, match="Give a reason"):
        call_command("revoke_tokens", user.email, "--reason", " ")
    assert AuditEvent.objects.filter(action="user:tokens_revoked").count() == 1


class TestEverybody:
    def test_every_token_of_everybody_is_dead_and_a_login_right_after_works(
        self, signed_in: APIClient, pair: TokenPair, user: User, capsys
    ) -> None:
        bob = User.objects.create_user("bob@acme.test", PASSWORD, client=user.client)
        at = Session.objects.get().started_at
        sign_in(email=bob.email, password=PASSWORD, device=Device(), now=at)
        call_command("revoke_all_tokens", reason="restored from a backup")
        assert "2 sessions of 2 people ended" in capsys.readouterr().out
        assert signed_in.get("/v1/auth/me").json()["code"] == "access_revoked"
        assert not RefreshToken.objects.unrevoked().exists()
        assert set(Session.objects.values_list("ended_by", flat=True)) == {"revoked"}
        fresh = sign_in(email=user.email, password=PASSWORD, device=Device(), now=at)
        signed_in.credentials(HTTP_AUTHORIZATION=f"Bearer {fresh.access}")
        assert signed_in.get("/v1/auth/me").status_code == 200
        event = AuditEvent.objects.get(action__endswith=":tokens_revoked")
        assert (event.action, event.actor, event.reason, event.after) == (
            "everybody:tokens_revoked",
            "manage.py revoke_all_tokens",
            "restored from a backup",
            {"people": 2, "sessions_ended": 2},
        )

    def test_a_revocation_of_everybody_runs_in_batches(
        self, user: User, by: Actor, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("accounts.sessions.revocation.PEOPLE_AT_A_TIME", 2)
        for n in range(4):
            User.objects.create_user(f"person-{n}@acme.test", client=user.client)
        assert revoke_everything(by=by, reason="test", now=now) == (5, 0)
        assert set(User.objects.values_list("epoch", flat=True)) == {1}

    def test_an_interrupted_revocation_is_audited_with_its_actor_and_reason(
        self, pair: TokenPair, user: User, by: Actor, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(last: UUID | None) -> list[UUID]:
            if last is not None:
                raise KeyboardInterrupt
            return lock(last)

        lock = revocation._lock_people_after
        monkeypatch.setattr(revocation, "_lock_people_after", interrupted)
        with pytest.raises(KeyboardInterrupt):
            revoke_everything(by=by, reason="leaked", now=now)
        assert not RefreshToken.objects.unrevoked().exists()
        begun = AuditEvent.objects.get(action__startswith="everybody:")
        assert (begun.action, begun.actor, begun.reason) == (
            "everybody:revocation_begun",
            by.name,
            "leaked",
        )
        monkeypatch.setattr(revocation, "_lock_people_after", lock)
        revoke_everything(by=by, reason="leaked, again", now=now)
        assert AuditEvent.objects.filter(action="everybody:revocation_begun").count() == 2
        assert AuditEvent.objects.filter(action="everybody:tokens_revoked").count() == 1

    def test_a_revocation_of_everybody_requires_a_reason(self, db: None) -> None:
        for reason in ("", " "):
            with pytest.raises(CommandError):
                call_command("revoke_all_tokens", reason=reason)
        assert not AuditEvent.objects.exists()


class TestARestore:
    """Rows as a backup had them, while tokens that were given out since are still held."""

    def test_revives_nothing_once_every_token_is_revoked(
        self,
        pair: TokenPair,
        user: User,
        console: Browser,
        by: Actor,
        api: APIClient,
        now: datetime,
    ) -> None:
        kept = enter(user, now)
        back_up()
        # Since the backup: a refresh, a revocation, a login under the new epoch, and another revocation.
        refreshed = rotate(presented=kept.refresh, device=Device(), now=now)
        revoke_all(user_id=user.pk, by=by, reason="since the backup", now=now)
        later = enter(user, now)
        revoke_all(user_id=user.pk, by=by, reason="since the backup", now=now)
        latest = enter(user, now)
        restore()
        # This is what the command is for.
        assert is_accepted(api, pair)
        assert RefreshToken.objects.live(at=now).count() == 2
        call_command("revoke_all_tokens", reason="restored from a backup")

        # The epoch is now one that was in use before the loss, by the same person.
        epoch = User.objects.get(pk=user.pk).epoch
        assert epoch == jwt.decode(later.access, options={"verify_signature": False})["ver"]
        for each in (pair, kept, refreshed, later, latest):
            assert not is_accepted(api, each)
            with pytest.raises(InvalidRefreshToken):
                rotate(presented=each.refresh, device=Device(), now=now)
        assert console.get("/admin/").status_code == 302
        fresh = enter(user, now)
        for each in (pair, kept, refreshed, later, latest):
            assert not is_accepted(api, each), "nor once the epoch is in use again"
        assert is_accepted(api, fresh)

    def test_revives_no_link_that_sets_a_password(self, user: User, now: datetime) -> None:
        PasswordLink.objects.create(
            user=user,
            kind=PasswordLink.Kind.INVITATION,
            secret_hash=sha256(b"mailed").hexdigest(),
            epoch=user.epoch,
            made_at=now,
            expires_at=now + timedelta(hours=72),
        )
        back_up()
        PasswordLink.objects.all().delete()
        restore()
        assert find_link("mailed", now=now)
        call_command("revoke_all_tokens", reason="restored from a backup")
        with pytest.raises(LinkSpent):
            find_link("mailed", now=now)


# Children after their parents.
RESTORED = (
    "accounts_user", "accounts_session", "accounts_refreshtoken", "accounts_passwordlink", "django_session",
)  # fmt: skip


def back_up() -> None:
    with connection.cursor() as cursor:
        for table in RESTORED:
            cursor.execute(f"CREATE TEMPORARY TABLE backup_{table} AS TABLE {table}")


def restore() -> None:
    """The rows of the backup and no others, below everything that Django could do about it."""
    with connection.cursor() as cursor:
        for table in reversed(RESTORED):
            cursor.execute(f"DELETE FROM {table}")
        for table in RESTORED:
            cursor.execute(f"INSERT INTO {table} SELECT * FROM backup_{table}")


def enter(user: User, now: datetime) -> TokenPair:
    return sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)


def is_accepted(api: APIClient, pair: TokenPair) -> bool:
    answer = api.get("/v1/auth/me", HTTP_AUTHORIZATION=f"Bearer {pair.access}")
    assert answer.status_code == 200 or answer.json()["code"] == "access_revoked"
    return bool(answer.status_code == 200)


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

    def test_only_pruning_may_delete_audit_events(self, event: AuditEvent) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL accounts.pruning_audit = 'on'")
            cursor.execute("DELETE FROM accounts_auditevent")
        assert not AuditEvent.objects.exists()

    def test_an_action_is_a_subject_and_a_verb(self, by: Actor, now: datetime) -> None:
        with pytest.raises(IntegrityError), transaction.atomic():
            record("Something happened", by=by, now=now)


@pytest.mark.django_db(transaction=True)
def test_a_login_that_races_the_revocation_of_everybody_is_either_revoked_or_new(
    organisation: Client, signing_key: None, by: Actor, now: datetime
) -> None:
    user = User.objects.create_user("ada@acme.test", PASSWORD, client=organisation)
    for _ in range(5):
        before = User.objects.get(pk=user.pk).epoch

        def enter() -> TokenPair:
            return sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)

        pairs = race(enter, lambda: revoke_everything(by=by, reason="test", now=now), enter)
        live = Session.objects.live(at=now).count()
        new = [
            each
            for each in (pairs[0], pairs[2])
            if isinstance(each, TokenPair)
            and jwt.decode(each.access, options={"verify_signature": False})["ver"] > before
        ]
        assert live == len(new)
        revoke_everything(by=by, reason="test", now=now)
