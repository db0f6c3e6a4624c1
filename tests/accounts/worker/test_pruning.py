"""Rows that are removed in time, and rows that must stay."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest
from django.contrib.sessions.models import Session as PageSession
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction

from accounts.audit import Actor, record
from accounts.models import AuditEvent, Client, RefreshToken, Session, User
from accounts.sessions.revocation import lock_user, revoke_all
from accounts.sessions.rotation import InvalidRefreshToken, rotate
from accounts.sessions.sign_in import Device, TokenPair, sign_in
from accounts.worker.pruning import prune_audit_log, prune_console_sessions, prune_refresh_tokens
from config.platform.problems.problem import instant
from config.platform.session_store import row_key
from tests.conftest import PASSWORD, Browser
from tests.races import race

DAYS = timedelta(days=1)


def events(*ages: int, by: Actor, now: datetime) -> None:
    for age in ages:
        record("client:created", by=by, now=now - age * DAYS, target=str(age))


def ages() -> list[str]:
    return list(AuditEvent.objects.filter(action="client:created").values_list("target", flat=True))


@pytest.mark.django_db
class TestAuditLog:
    def test_events_go_after_their_days_and_that_is_an_event(
        self, by: Actor, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("accounts.worker.pruning.EVENTS_AT_A_TIME", 2)
        events(0, 89, 90, 91, 92, 93, 94, 95, by=by, now=now)
        assert prune_audit_log(by=by, now=now) == 5
        assert ages() == ["0", "89", "90"]
        event = AuditEvent.objects.get(action="audit:pruned")
        before = instant(now - 90 * DAYS)
        assert (event.actor, event.after) == (by.name, {"events": 5, "older_than": before})
        assert prune_audit_log(by=by, now=now) == 0
        assert AuditEvent.objects.filter(action="audit:pruned").count() == 1

    def test_the_number_of_days_is_a_setting(self, by: Actor, now: datetime, settings) -> None:
        settings.AUDIT_RETENTION_DAYS = 10
        events(9, 11, by=by, now=now)
        assert prune_audit_log(by=by, now=now) == 1

    def test_the_log_is_closed_again_afterwards(self, by: Actor, now: datetime) -> None:
        events(0, 100, by=by, now=now)
        with transaction.atomic():
            prune_audit_log(by=by, now=now)
        with pytest.raises(IntegrityError), transaction.atomic():
            AuditEvent.objects.filter(target="0").delete()

    def test_the_command_may_only_say_how_many(
        self, by: Actor, now: datetime, capsys: pytest.CaptureFixture[str]
    ) -> None:
        events(0, 100, 200, by=by, now=now)
        call_command("prune_audit_log", "--dry-run")
        assert "2 events older than 90 days would be removed" in capsys.readouterr().out
        assert len(ages()) == 3
        call_command("prune_audit_log")
        assert "2 events older than 90 days removed" in capsys.readouterr().out
        assert ages() == ["0"]


@pytest.mark.django_db(transaction=True)
def test_two_at_once_remove_everything_once_and_leave_the_log_closed(
    by: Actor, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accounts.worker.pruning.EVENTS_AT_A_TIME", 7)
    events(0, *([100] * 60), by=by, now=now)

    def prune() -> int:
        return prune_audit_log(by=by, now=now)

    removed = race(prune, prune)
    assert all(isinstance(each, int) for each in removed)
    assert sum(each for each in removed if isinstance(each, int)) == 60
    assert ages() == ["0"]
    prune()
    with pytest.raises(IntegrityError):
        AuditEvent.objects.all().delete()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL accounts.pruning_audit = 'on'")
        cursor.execute("DELETE FROM accounts_auditevent")


@pytest.mark.usefixtures("signing_key")
@pytest.mark.django_db
class TestRefreshTokens:
    def enter(self, user: User, *, at: datetime) -> TokenPair:
        return sign_in(email=user.email, password=PASSWORD, device=Device(), now=at)

    def test_a_session_goes_thirty_days_after_its_end_with_all_its_tokens(
        self, user: User, by: Actor, now: datetime
    ) -> None:
        pair = self.enter(user, at=now)
        for n in range(3):
            pair = rotate(presented=pair.refresh, device=Device(), now=now + n * DAYS)
        revoke_all(user_id=user.pk, by=by, reason="test", now=now + 3 * DAYS)
        assert prune_refresh_tokens(now=now + 33 * DAYS) == (0, 0)
        assert prune_refresh_tokens(now=now + 33 * DAYS + timedelta(seconds=1)) == (1, 4)
        assert not Session.objects.exists()
        assert not RefreshToken.objects.exists()

    def test_an_unused_session_is_pruned_thirty_days_after_its_last_token_expired(
        self, user: User, now: datetime
    ) -> None:
        pair = self.enter(user, at=now)
        rotate(presented=pair.refresh, device=Device(), now=now + 10 * DAYS)
        assert prune_refresh_tokens(now=now + 70 * DAYS) == (0, 0)
        assert prune_refresh_tokens(now=now + 71 * DAYS) == (1, 2)

    def test_a_replaced_token_of_a_living_session_is_still_noticed(
        self, user: User, now: datetime
    ) -> None:
        first = pair = self.enter(user, at=now)
        for n in range(5):
            pair = rotate(presented=pair.refresh, device=Device(), now=now + 29 * n * DAYS)
        at = now + 29 * 4 * DAYS
        assert prune_refresh_tokens(now=at) == (0, 0)
        with pytest.raises(InvalidRefreshToken):
            rotate(presented=first.refresh, device=Device(), now=at)
        assert Session.objects.get().ended_by == Session.Ended.REUSE

    def test_all_batches_are_done_and_others_left_alone(
        self, user: User, by: Actor, now: datetime, monkeypatch: pytest.MonkeyPatch, capsys
    ) -> None:
        monkeypatch.setattr("accounts.worker.pruning.SESSIONS_AT_A_TIME", 2)
        for _ in range(5):
            self.enter(user, at=now - 90 * DAYS)
        self.enter(user, at=now)
        call_command("prune_refresh_tokens")
        assert "5 sessions that ended 30 days ago removed, with 5 tokens" in capsys.readouterr().out
        assert Session.objects.count() == RefreshToken.objects.count() == 1

    def test_sessions_that_ended_at_one_moment_are_all_found_and_counted_alike(
        self, user: User, by: Actor, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("accounts.worker.pruning.SESSIONS_AT_A_TIME", 2)
        for _ in range(5):
            self.enter(user, at=now)
        revoke_all(user_id=user.pk, by=by, reason="test", now=now)
        at = now + 31 * DAYS
        assert prune_refresh_tokens(now=at, dry_run=True) == (5, 5)
        assert prune_refresh_tokens(now=at) == (5, 5)
        assert prune_refresh_tokens(now=at) == (0, 0)


@pytest.mark.django_db
def test_sessions_of_the_console_go_when_they_have_expired(
    operator: User, now: datetime, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr("accounts.worker.pruning.SESSIONS_AT_A_TIME", 2)
    for minutes in (-3, -2, -1, 60):
        browser = Browser()
        browser.force_login(operator)
        PageSession.objects.filter(pk=row_key(browser.session.session_key)).update(
            expire_date=now + timedelta(minutes=minutes)
        )
    assert prune_console_sessions(now=now, dry_run=True) == 3
    call_command("prune_refresh_tokens", "--dry-run")
    assert "3 expired sessions of the console would be removed" in capsys.readouterr().out
    call_command("prune_refresh_tokens")
    assert "3 expired sessions of the console removed" in capsys.readouterr().out
    assert PageSession.objects.get().expire_date == now + timedelta(minutes=60)


@pytest.mark.django_db(transaction=True)
def test_a_busy_person_keeps_nobody_else_waiting(
    organisation: Client, signing_key: None, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accounts.worker.pruning.SESSIONS_AT_A_TIME", 1)
    busy, other = (
        User.objects.create_user(f"{name}@acme.test", PASSWORD, client=organisation)
        for name in ("busy", "other")
    )
    for minute, user in enumerate((busy, other)):
        at = now - 90 * DAYS + timedelta(minutes=minute)
        sign_in(email=user.email, password=PASSWORD, device=Device(), now=at)
    with while_locked(busy):
        assert prune_refresh_tokens(now=now) == (1, 1)
    assert Session.objects.get().user == busy
    assert prune_refresh_tokens(now=now) == (1, 1)


@contextmanager
def while_locked(user: User) -> Iterator[None]:
    """Another connection holds the lock that granting and revoking take."""
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            lock_user(user.pk)
            locked.set()
            done.wait(30)
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert locked.wait(30)
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.django_db(transaction=True)
def test_pruning_twice_at_once_beside_a_revocation_harms_nothing(
    organisation: Client, signing_key: None, by: Actor, now: datetime
) -> None:
    people = [
        User.objects.create_user(f"person-{n}@acme.test", PASSWORD, client=organisation)
        for n in range(3)
    ]
    for user in people * 3:
        sign_in(email=user.email, password=PASSWORD, device=Device(), now=now - 90 * DAYS)

    def prune() -> tuple[int, int]:
        return prune_refresh_tokens(now=now)

    def revoke() -> int:
        return revoke_all(user_id=people[0].pk, by=by, reason="test", now=now)

    results = race(prune, revoke, prune)
    assert [each for each in results if isinstance(each, Exception)] == []
    # A session that has just ended is kept for thirty days, unless it was found before as one long expired.
    ended_now = results[1]
    assert isinstance(ended_now, int)
    prune()
    assert Session.objects.count() == RefreshToken.objects.count() <= ended_now
