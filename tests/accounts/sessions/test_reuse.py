"""Reuse: what it ends, what it leaves behind as evidence, whom it tells, and how often."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, RefreshToken, Session, User
from accounts.sessions.refresh_tokens import RefreshSecret
from accounts.sessions.revocation import revoke_all, sign_out
from accounts.sessions.rotation import InvalidRefreshToken, rotate
from accounts.sessions.sign_in import Device, TokenPair, sign_in
from tests.conftest import PASSWORD

pytestmark = pytest.mark.django_db

DESK = Device(fingerprint="desk", address="192.0.2.9", request_id="req-desk")
THIEF = Device(fingerprint="elsewhere", address="198.51.100.4", request_id="req-thief")


@pytest.fixture
def first(user: User, signing_key: None, now: datetime) -> str:
    """A refresh token of a desk; it is replaced already, and ``second`` took its place."""
    return sign_in(email=user.email, password=PASSWORD, device=DESK, now=now).refresh


@pytest.fixture
def second(first: str, now: datetime) -> TokenPair:
    return rotate(presented=first, device=DESK, now=now)


def replay(token: str, at: datetime, device: Device = THIEF, key: str | None = None) -> None:
    with pytest.raises(InvalidRefreshToken):
        rotate(presented=token, device=device, retry_key=key, now=at)


def evidence() -> list[dict[str, Any]]:
    """Returns the evidence of all reuse, the oldest first."""
    events = AuditEvent.objects.filter(action="session:token_reused").order_by("id")
    return [event.after or {} for event in events]


def mailed() -> list[dict[str, Any]]:
    jobs = ProcrastinateJob.objects.filter(task_name="mail.send").order_by("id")
    return [job.args for job in jobs]


@pytest.mark.usefixtures("second")
def test_the_audit_log_has_time_and_address_of_use_and_replay(
    first: str, user: User, now: datetime
) -> None:
    replay(first, now + timedelta(hours=2))
    session = Session.objects.get()
    assert session.ended_by == Session.Ended.REUSE
    assert evidence() == [
        {
            "kind": "stale",
            "used_at": now.isoformat().replace("+00:00", "Z"),
            "used_from": "192.0.2.9",
            "replayed_at": (now + timedelta(hours=2)).isoformat().replace("+00:00", "Z"),
            "replayed_from": "198.51.100.4",
            "device_same": False,
        }
    ]
    event = AuditEvent.objects.get(action="session:token_reused")
    assert (event.target, event.target_id) == (user.email, str(session.pk))
    # The presenter of the token is unknown, so the event names nobody.
    assert (event.actor, event.actor_id) == ("whoever presented the token", None)
    assert (event.address, event.request_id) == ("198.51.100.4", "req-thief")


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        (timedelta(seconds=-2), "concurrent"),
        (timedelta(0), "concurrent"),
        (timedelta(seconds=9), "concurrent"),
        (timedelta(seconds=11), "stale"),
        (timedelta(days=29), "stale"),
        # Older than a token lasts, and a token that has been used all the same.
        (timedelta(days=45), "stale"),
    ],
)
def test_the_kind_of_reuse_distinguishes_one_device_from_two_holders(
    first: str, second: TokenPair, now: datetime, after: timedelta, kind: str
) -> None:
    replay(first, now + after)
    assert [each["kind"] for each in evidence()] == [kind]
    assert Session.objects.get().ended_by == Session.Ended.REUSE


def test_a_token_is_stale_once_its_successor_was_used(
    first: str, second: TokenPair, now: datetime
) -> None:
    rotate(presented=second.refresh, device=DESK, now=now)
    replay(first, now)
    assert [each["kind"] for each in evidence()] == ["stale"]


def test_a_replaced_token_of_an_ended_session_leaves_evidence_too(
    first: str, second: TokenPair, now: datetime, settings: Any
) -> None:
    sign_out(presented=second.refresh, by_address=None, request_id="", now=now)
    replay(first, now + timedelta(days=3))
    (found,) = evidence()
    assert (found["kind"], found["ended_by"]) == ("revoked", "logout")
    assert found["ended_at"] == now.isoformat().replace("+00:00", "Z")
    assert found["replayed_from"] == "198.51.100.4"
    # There was nothing left to end, so it has still ended as it did, and the person has nothing to do.
    assert Session.objects.get().ended_by == Session.Ended.LOGOUT
    assert [each["to"] for each in mailed()] == [settings.OPERATOR_EMAILS]


@pytest.mark.usefixtures("second")
def test_reuse_by_a_disabled_person_is_evidence_as_well(
    first: str, user: User, now: datetime
) -> None:
    revoke_all(user_id=user.pk, by=Actor(name="test"), reason="test", now=now)
    User.objects.update(is_active=False)
    replay(first, now)
    assert [each["kind"] for each in evidence()] == ["revoked"]


def test_a_token_that_was_merely_revoked_or_expired_is_no_evidence(
    first: str, second: TokenPair, now: datetime
) -> None:
    replay(second.refresh, now + timedelta(days=30))
    sign_out(presented=first, by_address=None, request_id="", now=now)
    # The shell that held it cannot know.
    replay(second.refresh, now)
    assert evidence() == []
    assert mailed() == []


@pytest.mark.usefixtures("second")
class TestATokenThatIsTriedAgainAndAgain:
    def test_is_one_event_an_hour_and_no_further_mail(self, first: str, now: datetime) -> None:
        replay(first, now)
        for minute in range(60):
            replay(first, now + timedelta(minutes=minute))
        assert [each["kind"] for each in evidence()] == ["concurrent"]
        replay(first, now + timedelta(minutes=60))
        replay(first, now + timedelta(minutes=61))
        assert [each["kind"] for each in evidence()] == ["concurrent", "revoked"]
        assert len(mailed()) == 2

    def test_is_one_event_where_its_session_had_ended_otherwise(
        self, first: str, user: User, by: Actor, now: datetime
    ) -> None:
        revoke_all(user_id=user.pk, by=by, reason="test", now=now)
        for minute in range(60):
            replay(first, now + timedelta(minutes=minute))
        assert len(evidence()) == 1
        assert len(mailed()) == 1

    def test_does_not_hide_reuse_in_another_session(
        self, first: str, user: User, now: datetime
    ) -> None:
        other = sign_in(email=user.email, password=PASSWORD, device=DESK, now=now)
        rotate(presented=other.refresh, device=DESK, now=now)
        replay(first, now)
        replay(other.refresh, now)
        assert len(evidence()) == 2
        assert len(mailed()) == 4


class TestMail:
    @pytest.mark.usefixtures("second")
    def test_operators_are_notified_of_a_reuse_with_its_details(
        self, first: str, user: User, now: datetime, settings: Any
    ) -> None:
        replay(first, now + timedelta(hours=2))
        (mail,) = (each for each in mailed() if each["to"] == settings.OPERATOR_EMAILS)
        assert user.email not in mail["subject"] + mail["text"]
        for known in ("Kind:       stale", "192.0.2.9", "198.51.100.4", "another device"):
            assert known in mail["text"]
        assert f"{settings.BASE_URL}/admin/accounts/session/" in mail["text"]

    @pytest.mark.usefixtures("second")
    def test_the_mail_to_the_person_gives_the_cause_and_the_next_steps(
        self, first: str, user: User, now: datetime
    ) -> None:
        replay(first, now + timedelta(hours=2))
        (mail,) = (each for each in mailed() if each["to"] == [user.email])
        assert mail["subject"] == "One of your devices was signed out"
        for part in (mail["text"], mail["html"]):
            plain = " ".join(part.split())
            for known in (
                "192.0.2.9",
                "198.51.100.4",
                "desk",
                "sign in again",
                "Change your password",
            ):
                assert known in plain
            assert now.strftime("%H:%M:%S UTC") in plain
            assert "reset" not in plain, "there is nothing in it that a thief could have sent"

    def test_no_token_stands_in_any(self, first: str, second: TokenPair, now: datetime) -> None:
        replay(first, now)
        written = str(mailed()) + str(list(AuditEvent.objects.values()))
        for token in (first, second.refresh, second.access):
            assert token not in written
        for token in (first, second.refresh):
            secret = RefreshSecret.parse(token)
            assert secret is not None
            assert str(secret.id) not in written, "nor half of one"

    @pytest.mark.usefixtures("second")
    def test_both_mails_are_queued_in_the_transaction(self, first: str, now: datetime) -> None:
        with transaction.atomic():
            replay(first, now)
            assert len(mailed()) == 2
            transaction.set_rollback(True)
        assert mailed() == []
        assert Session.objects.get().ended_at is None

    @pytest.mark.usefixtures("signing_key")
    def test_a_device_without_a_name_and_an_unknown_address_read_well(
        self, user: User, now: datetime
    ) -> None:
        nowhere = Device()
        first = sign_in(email=user.email, password=PASSWORD, device=nowhere, now=now).refresh
        rotate(presented=first, device=nowhere, now=now)
        replay(first, now, nowhere)
        text = " ".join(mailed()[1]["text"].split())
        assert "from an unknown address" in text
        assert "You signed in on that device on" in text
        assert "None" not in text


@pytest.mark.usefixtures("second")
def test_reuse_is_noticed_and_a_retry_is_none_where_the_client_is_gone(
    first: str, second: TokenPair, organisation: Client, now: datetime
) -> None:
    key = "k" * 22
    third = rotate(presented=second.refresh, device=DESK, retry_key=key, now=now)
    User.objects.update(client=None)
    replay(second.refresh, now, DESK, key)
    assert evidence() == []
    User.objects.update(client=organisation)
    assert rotate(presented=second.refresh, device=DESK, retry_key=key, now=now).refresh == (
        third.refresh
    )
    User.objects.update(client=None)
    replay(first, now)
    assert Session.objects.get().ended_by == Session.Ended.REUSE
    assert not RefreshToken.objects.unrevoked().exists()
