"""Ending connections: here at once, there until it is confirmed, and visibly where it never is."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import connection as database
from django.db import transaction
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor
from accounts.connections import disconnecting
from accounts.connections.authorisation import begin
from accounts.connections.disconnecting import (
    GIVEN_UP_AFTER,
    LONGEST_PAUSE,
    OVERDUE,
    ConnectionNotFound,
    disconnect,
    disconnect_all,
    dismiss,
    queue_overdue,
    retry,
    revoke,
)
from accounts.models import (
    AuditEvent,
    Connection,
    ConnectionAttempt,
    ConnectionRevocation,
    Session,
    User,
)
from accounts.people.access import delete_user, disable
from accounts.worker.tasks import revoke_connection
from tests.accounts.connections.conftest import REDIRECT, configure
from tests.accounts.connections.party import Party, Said, says
from tests.conftest import Browser

pytestmark = pytest.mark.django_db


@pytest.fixture
def waiting(connection: Connection, user: User, by: Actor, now: datetime) -> ConnectionRevocation:
    """Disconnected here, not revoked there yet."""
    disconnect(user_id=user.pk, provider="sheets", by=by, now=now)
    return ConnectionRevocation.objects.get()


def jobs() -> list[datetime | None]:
    """Returns when revocations are due; the newest last."""
    queued = ProcrastinateJob.objects.filter(task_name="accounts.revoke_connection")
    return list(queued.order_by("id").values_list("scheduled_at", flat=True))


def actions() -> list[str]:
    events = AuditEvent.objects.filter(action__startswith="connection").order_by("id")
    return list(events.values_list("action", flat=True))


class TestHere:
    def test_the_connection_is_gone_at_once_and_its_end_is_audited(
        self, waiting: ConnectionRevocation, user: User, by: Actor, now: datetime
    ) -> None:
        assert not Connection.objects.exists()
        event = AuditEvent.objects.get(action="connection:removed")
        assert (event.actor, event.target_id) == (by.name, str(user.pk))
        assert event.before == {"provider": "sheets", "scopes": ["sheets"]}
        assert event.after == {"to_be_revoked": True}
        with pytest.raises(ConnectionNotFound):
            disconnect(user_id=user.pk, provider="sheets", by=by, now=now)

    def test_the_tokens_to_revoke_are_encrypted_and_not_in_the_queue(
        self, waiting: ConnectionRevocation
    ) -> None:
        job = ProcrastinateJob.objects.get(task_name="accounts.revoke_connection")
        assert job.args == {"revocation_id": waiting.pk}
        row = str(ConnectionRevocation.objects.values().get())
        assert not [each for each in ("refresh-1", "access-1") if each in row]

    def test_disconnecting_rolls_back_with_its_transaction(
        self, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        with transaction.atomic():
            assert disconnect_all(user_id=user.pk, by=by, now=now) == 1
            transaction.set_rollback(True)
        assert Connection.objects.count() == 1
        assert jobs() == []

    def test_a_disabled_person_is_disconnected(
        self, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        begin(
            user_id=user.pk,
            session_id=Session.objects.get().pk,
            provider="sheets",
            redirect_uri=REDIRECT,
            now=now,
        )
        disable(user_id=user.pk, reason="left", by=by, now=now)
        assert not Connection.objects.exists()
        assert not ConnectionAttempt.objects.exists()
        assert ConnectionRevocation.objects.count() == 1

    def test_a_deleted_person_is_disconnected_and_still_revoked(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime
    ) -> None:
        delete_user(user_id=user.pk, reason="left", by=by, now=now)
        assert revoke(revocation_id=ConnectionRevocation.objects.get().pk, now=now)
        assert not ConnectionRevocation.objects.exists()

    def test_a_provider_without_a_revocation_endpoint_leaves_nothing_to_queue(
        self, party: Party, connection: Connection, user: User, by: Actor, now: datetime,
        settings: Any,
    ) -> None:  # fmt: skip
        configure(settings, sheets=party.provider(revocation_endpoint=""))
        disconnect(user_id=user.pk, provider="sheets", by=by, now=now)
        assert not ConnectionRevocation.objects.exists()
        event = AuditEvent.objects.get(action="connection:removed")
        assert event.after == {"to_be_revoked": False}

    def test_tokens_that_cannot_be_read_are_no_reason_to_stay_connected(
        self, connection: Connection, user: User, by: Actor, now: datetime, settings: Any
    ) -> None:
        class Keys:
            def listed(self) -> list[str]:
                return [Fernet.generate_key().decode()]

        settings.ENCRYPTION_KEYS = Keys()
        disconnect(user_id=user.pk, provider="sheets", by=by, now=now)
        assert not Connection.objects.exists()
        assert not ConnectionRevocation.objects.exists()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time passes in a try, however long it takes here."""
    monkeypatch.setattr(disconnecting, "clock_from", lambda now: lambda: now)


class TestThere:
    def test_both_tokens_are_revoked_and_then_forgotten(
        self, party: Party, waiting: ConnectionRevocation
    ) -> None:
        party.answers = [Said(200)]
        revoke_connection(waiting.pk)
        revoked = [(form["token_type_hint"], form["token"]) for form in party.forms[-2:]]
        assert revoked == [("refresh_token", "refresh-1"), ("access_token", "access-1")]
        assert not ConnectionRevocation.objects.exists()
        # A job is done at least once.
        revoke_connection(waiting.pk)
        assert actions()[-1] == "connection:revoked"
        assert actions().count("connection:revoked") == 1

    @pytest.mark.usefixtures("at_once")
    def test_a_failure_queues_the_next_try_later_and_later(
        self, party: Party, waiting: ConnectionRevocation, now: datetime
    ) -> None:
        party.answers = [says(503)]
        for _ in range(12):
            assert not revoke(revocation_id=waiting.pk, now=now)
        pauses = [at - now for at in jobs()[1:] if at]
        assert pauses[:3] == [timedelta(seconds=5), timedelta(seconds=20), timedelta(seconds=80)]
        assert pauses[-1] == LONGEST_PAUSE
        waiting.refresh_from_db()
        assert (waiting.attempts, waiting.failure) == (12, "overloaded")
        assert waiting.tried_at == now

    def test_half_a_revocation_is_none(
        self, party: Party, waiting: ConnectionRevocation, now: datetime
    ) -> None:
        party.answers = [Said(200), says(500)]
        assert not revoke(revocation_id=waiting.pk, now=now)
        party.answers = [Said(200)]
        assert revoke(revocation_id=waiting.pk, now=now)

    def test_a_provider_that_is_not_set_up_any_more_may_be_again(
        self, party: Party, waiting: ConnectionRevocation, now: datetime, settings: Any
    ) -> None:
        configure(settings)
        assert not revoke(revocation_id=waiting.pk, now=now)
        waiting.refresh_from_db()
        assert waiting.failure == "not_configured"
        configure(settings, sheets=party.provider())
        party.answers = [Said(200)]
        assert revoke(revocation_id=waiting.pk, now=now)

    @pytest.mark.usefixtures("at_once")
    def test_operators_are_notified_after_two_weeks(
        self, party: Party, waiting: ConnectionRevocation, by: Actor, now: datetime,
        console: Browser,
    ) -> None:  # fmt: skip
        party.answers = [says(500)]
        over = now + GIVEN_UP_AFTER
        assert not revoke(revocation_id=waiting.pk, now=over)
        waiting.refresh_from_db()
        assert waiting.gave_up_at == over
        assert actions()[-1] == "connection:revocation_given_up"
        assert len(jobs()) == 1
        assert not revoke(revocation_id=waiting.pk, now=over)
        assert b"could not be revoked at the provider." in console.get("/admin/").content

        assert retry(revocation_id=waiting.pk, reason="it is back", by=by, now=over)
        assert not retry(revocation_id=waiting.pk, reason="it is back", by=by, now=over)
        party.answers = [Said(200)]
        assert revoke(revocation_id=waiting.pk, now=over)
        assert actions()[-2:] == ["connection:revocation_retried", "connection:revoked"]

    def test_an_operator_can_forget_it(
        self, waiting: ConnectionRevocation, by: Actor, now: datetime
    ) -> None:
        assert dismiss(revocation_id=waiting.pk, reason="ended there by hand", by=by, now=now)
        assert not dismiss(revocation_id=waiting.pk, reason="again", by=by, now=now)
        assert actions()[-1] == "connection:revocation_dismissed"
        assert not ConnectionRevocation.objects.exists()

    def test_a_try_that_was_lost_with_its_job_is_queued_again(
        self, waiting: ConnectionRevocation, now: datetime
    ) -> None:
        with database.cursor() as cursor:
            cursor.execute("DELETE FROM procrastinate_jobs")
        assert queue_overdue(now=now + OVERDUE) == 0
        later = now + OVERDUE + timedelta(seconds=1)
        assert queue_overdue(now=later) == 1
        assert queue_overdue(now=later) == 0
        assert jobs() == [later]

    def test_no_person_is_named_by_what_is_left(
        self, waiting: ConnectionRevocation, user: User
    ) -> None:
        assert user.email not in str(ConnectionRevocation.objects.values().get())
        assert disconnecting.BY.id is None
