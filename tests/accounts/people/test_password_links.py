"""Links that set a password: who gets one, what it opens, and what voids it."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from smtplib import SMTPRecipientsRefused
from typing import Any
from unittest.mock import Mock

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from procrastinate import JobContext
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateJob
from procrastinate.jobs import Job

from accounts import mails
from accounts.audit import Actor
from accounts.models import AuditEvent, Client, PasswordLink, Session, User
from accounts.people.access import disable, enable
from accounts.people.password_links import (
    Disabled,
    LinkSpent,
    find_link,
    request_link,
    request_reset,
    send_link,
    send_reset,
    use_link,
)
from accounts.people.users import change_email, set_password
from accounts.sessions.revocation import revoke_all
from accounts.sessions.sign_in import Device, TokenPair, sign_in
from accounts.worker import tasks
from config.platform.jobs.mail import Refused, Unaddressable, queue_for_operators
from config.platform.jobs.queue import UNHURRIED
from config.platform.problems.problem import InvalidRequest
from tests.conftest import PASSWORD
from tests.races import race
from tests.standins.mail_server import MailServer

NEW = "another good horse battery"
RESET, INVITATION = PasswordLink.Kind.RESET, PasswordLink.Kind.INVITATION
MINUTES, HOURS = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture(autouse=True)
def _base_url(settings: Any) -> None:
    settings.BASE_URL = "https://shell.test"


def secret_in(message: Any) -> str:
    """The secret of the one link that a mail holds, in its text and in its page alike."""
    ((page, kind),) = message.alternatives
    assert kind == "text/html"
    found = set(re.findall(r"https://shell\.test/account/password/([\w-]+)", message.body))
    assert found == set(re.findall(r"https://shell\.test/account/password/([\w-]+)", page))
    (secret,) = found
    assert len(secret) == 43
    return str(secret)


def sent(user: User, *, now: datetime, kind: PasswordLink.Kind = RESET) -> str:
    assert send_link(user_id=user.pk, kind=kind, now=now)
    return secret_in(mail.outbox[-1])


def use(secret: str, *, now: datetime, password: str = NEW) -> int:
    return use_link(
        presented=secret, password=password, address="192.0.2.9", request_id="r", now=now
    )


def jobs(task: str) -> list[Any]:
    return [job.args for job in ProcrastinateJob.objects.filter(task_name=task).order_by("id")]


def try_reset(attempts: int = 0, **inputs: Any) -> None:
    """Does a job as a worker does, which has failed so many times before."""
    job = Job(
        id=1,
        queue="resets",
        lock=None,
        queueing_lock=None,
        task_name="accounts.send_reset",
        attempts=attempts,
    )
    context = JobContext(app=app, job=job, start_timestamp=0.0, abort_reason=lambda: None)
    tasks.send_reset(context, **inputs)


def break_mail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[Any]:
    """The mails that are tried from now on, and fail."""
    tried: list[Any] = []

    def refuse(_: object, messages: list[Any]) -> None:
        tried.extend(messages)
        raise error

    monkeypatch.setattr("django.core.mail.backends.locmem.EmailBackend.send_messages", refuse)
    return tried


def audited() -> int:
    return AuditEvent.objects.filter(action="user:password_link_requested").count()


@pytest.mark.django_db
class TestABrokenMailServer:
    """A stranger can do no more through it than through one that works."""

    def ask(self, user: User, at: datetime, *, again: bool = False) -> bool:
        return send_reset(email=user.email, address=None, request_id="", again=again, now=at)

    def test_three_resets_are_tried_and_audited_and_no_more(
        self, user: User, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tried = break_mail(monkeypatch, ConnectionRefusedError())
        for number in range(20):
            with suppress(ConnectionRefusedError):
                assert not self.ask(user, now + timedelta(seconds=number))
        assert (len(tried), audited()) == (3, 3)
        for message in tried:
            with pytest.raises(LinkSpent):
                find_link(secret_in(message), now=now)
        with pytest.raises(ConnectionRefusedError):
            self.ask(user, now + 31 * MINUTES)

    def test_each_mail_is_retried_without_being_counted_again_and_arrives(
        self, user: User, now: datetime
    ) -> None:
        with pytest.MonkeyPatch.context() as broken:
            tried = break_mail(broken, ConnectionRefusedError())
            for again in (False, True, True, True, True):
                with pytest.raises(ConnectionRefusedError):
                    self.ask(user, now, again=again)
            assert (len(tried), audited()) == (5, 1)
        assert self.ask(user, now + MINUTES, again=True)
        assert find_link(secret_in(mail.outbox[-1]), now=now + MINUTES).user == user
        assert audited() == 1

    def test_three_that_failed_do_not_stand_in_each_others_way(
        self, user: User, now: datetime
    ) -> None:
        with pytest.MonkeyPatch.context() as broken:
            break_mail(broken, ConnectionRefusedError())
            for _ in range(3):
                with pytest.raises(ConnectionRefusedError):
                    self.ask(user, now)
        assert [self.ask(user, now + MINUTES, again=True) for _ in range(3)] == [True] * 3
        assert not self.ask(user, now + MINUTES)

    def test_a_mail_whose_worker_was_killed_repeatedly_arrives_in_the_end(
        self, user: User, now: datetime
    ) -> None:
        assert self.ask(user, now)
        arrived = secret_in(mail.outbox[-1])
        with pytest.MonkeyPatch.context() as broken:
            # The code after it does not run, as after a kill.
            broken.setattr(mails, "send_password_link", Mock(side_effect=KeyboardInterrupt))
            for again in (False, True, True, True, True):
                with pytest.raises(KeyboardInterrupt):
                    self.ask(user, now, again=again)
        assert find_link(arrived, now=now).user == user
        assert self.ask(user, now + MINUTES, again=True)
        assert find_link(secret_in(mail.outbox[-1]), now=now + MINUTES).user == user

    def test_all_that_waited_for_it_are_no_more_mails_than_three_in_half_an_hour(
        self, user: User, now: datetime
    ) -> None:
        assert [self.ask(user, now, again=True) for _ in range(5)] == [True] * 3 + [False] * 2

    def test_the_worker_knows_a_try_from_the_first(
        self, user: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        break_mail(monkeypatch, ConnectionRefusedError())
        for attempts in range(3):
            with pytest.raises(ConnectionRefusedError):
                try_reset(attempts, email=user.email, address=None, request_id="r")
        assert audited() == 1

    def test_a_reset_that_is_refused_for_good_is_done_with_and_one_of_an_operator_has_failed(
        self, user: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        gone = SMTPRecipientsRefused({user.email: (550, b"No such mailbox")})
        break_mail(monkeypatch, gone)
        try_reset(email=user.email, address=None, request_id="r")
        assert caplog.messages == ["mail_refused"]
        with pytest.raises(Refused):
            tasks.send_password_link(user_id=str(user.pk), kind="reset")

    def test_a_reset_that_the_mail_server_cannot_address_has_failed_for_operators_to_see(
        self, user: User, settings: Any
    ) -> None:
        """Another server, or another email of the person, mends it."""
        mailbox = "j\u00f6rg@acme.test"
        User.objects.filter(pk=user.pk).update(email=mailbox, email_form=mailbox)
        server = MailServer()
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        try:
            with pytest.raises(Unaddressable):
                try_reset(email="JO\u0308RG@acme.test", address=None, request_id="r")
            with pytest.raises(Unaddressable):
                tasks.send_password_link(user_id=str(user.pk), kind="reset")
            assert not PasswordLink.objects.filter(used_at=None).exists()
            server.utf8 = True
            try_reset(email="JO\u0308RG@acme.test", address=None, request_id="r")
        finally:
            server.close()
        assert [mail.to for mail in server.mails] == [[mailbox]]

    def test_a_link_sent_by_an_operator_is_not_counted_where_it_fails(
        self, user: User, now: datetime
    ) -> None:
        with pytest.MonkeyPatch.context() as broken:
            break_mail(broken, ConnectionRefusedError())
            for _ in range(4):
                with pytest.raises(ConnectionRefusedError):
                    send_link(user_id=user.pk, kind=RESET, now=now)
        assert self.ask(user, now)


@pytest.mark.django_db
class TestSending:
    def test_known_and_unknown_are_queued_alike_and_only_known_get_a_mail(self, user: User) -> None:
        for email in (user.email.upper(), "nobody@acme.test"):
            request_reset(email=email, address="192.0.2.9", request_id="request-1")
        queued = jobs("accounts.send_reset")
        assert [each.pop("email") for each in queued] == [user.email, "nobody@acme.test"]
        assert queued == [{"address": "192.0.2.9", "request_id": "request-1"}] * 2
        kept = ProcrastinateJob.objects.filter(task_name="accounts.send_reset")
        assert set(kept.values_list("queue_name", "priority", "lock", "queueing_lock")) == {
            ("resets", UNHURRIED, None, None)
        }
        assert not PasswordLink.objects.exists()
        for email in (user.email, "nobody@acme.test"):
            try_reset(email=email, address="192.0.2.9", request_id="request-1")
        assert [message.to for message in mail.outbox] == [[user.email]]
        event = AuditEvent.objects.get(action="user:password_link_requested")
        assert (event.target, event.address, event.request_id) == (
            user.email,
            "192.0.2.9",
            "request-1",
        )

    def test_operators_mail_goes_first_however_many_strangers_ask(self, settings: Any) -> None:
        settings.OPERATOR_EMAILS = ["ops@shell.test"]
        for number in range(3):
            request_reset(email=f"{number}@acme.test", address=None, request_id="")
        queue_for_operators(subject="Look", text="Now.", path="/admin/")
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id")
            (worker,) = cursor.fetchone() or (None,)
            cursor.execute("SELECT task_name FROM procrastinate_fetch_job_v2(NULL, %s)", [worker])
            assert cursor.fetchall() == [("mail.send",)]

    def test_the_secret_is_in_the_mail_and_nowhere_else(
        self, user: User, by: Actor, now: datetime
    ) -> None:
        user.set_unusable_password()
        user.save()
        request_link(user_id=user.pk, kind=INVITATION, by=by, now=now)
        (given,) = jobs("accounts.send_password_link")
        assert given == {"user_id": str(user.pk), "kind": "invitation"}
        tasks.send_password_link(**given)
        secret = secret_in(mail.outbox[-1])
        use(secret, now=now)
        kept = [
            *ProcrastinateJob.objects.values(),
            *AuditEvent.objects.values(),
            *PasswordLink.objects.values(),
        ]
        assert secret not in json.dumps(kept, default=str)
        assert NEW not in json.dumps(kept, default=str)

    def test_nobody_disabled_gets_one(self, user: User, by: Actor, now: datetime) -> None:
        disable(user_id=user.pk, reason="Has left.", by=by, now=now)
        with pytest.raises(Disabled):
            request_link(user_id=user.pk, kind=RESET, by=by, now=now)
        assert not send_reset(email=user.email, address=None, request_id="", now=now)
        assert not send_link(user_id=user.pk, kind=RESET, now=now)
        assert mail.outbox == []

    def test_a_stranger_has_three_sent_in_half_an_hour_and_the_last_one_works(
        self, user: User, now: datetime
    ) -> None:
        def ask(at: datetime) -> bool:
            return send_reset(email=user.email, address=None, request_id="", now=at)

        assert [ask(now + n * MINUTES) for n in range(5)] == [True, True, True, False, False]
        assert find_link(secret_in(mail.outbox[-1]), now=now + 30 * MINUTES)
        assert ask(now + 31 * MINUTES)

    def test_a_mail_that_cannot_be_sent_leaves_the_link_before_it_as_it_was(
        self, user: User, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        arrived = sent(user, now=now)
        break_mail(monkeypatch, ConnectionRefusedError())
        with pytest.raises(ConnectionRefusedError):
            send_link(user_id=user.pk, kind=RESET, now=now)
        with pytest.raises(ConnectionRefusedError):
            send_reset(email=user.email, address=None, request_id="", now=now)
        assert find_link(arrived, now=now).user == user

    def test_the_command_queues_it(self, user: User, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(CommandError, match="without a password"):
            call_command("send_password_link", user.email, "--invite")
        user.set_unusable_password()
        user.save()
        call_command("send_password_link", user.email.upper(), "--invite")
        assert "invitation queued for ada@acme.test" in capsys.readouterr().out
        assert [each["kind"] for each in jobs("accounts.send_password_link")] == ["invitation"]
        event = AuditEvent.objects.get(action="user:password_link_requested")
        assert event.actor == "manage.py send_password_link"
        with pytest.raises(CommandError):
            call_command("send_password_link", "nobody@acme.test")
        User.objects.update(is_active=False)
        with pytest.raises(CommandError):
            call_command("send_password_link", user.email)


@pytest.mark.django_db
class TestUsing:
    def test_a_link_sets_the_password_ends_every_session_and_informs_the_person(
        self, user: User, pair: TokenPair, now: datetime
    ) -> None:
        assert use(sent(user, now=now), now=now) == 1
        assert not Session.objects.live(at=now).exists()
        assert sign_in(email=user.email, password=NEW, device=Device(), now=now).access
        event = AuditEvent.objects.get(action="user:password_set")
        assert (event.actor, event.address) == (user.email, "192.0.2.9")
        (notice,) = jobs("mail.send")
        assert (notice["to"], notice["subject"]) == ([user.email], "Your password was changed")

    def test_a_first_password_sends_no_mail_about_a_change(self, user: User, now: datetime) -> None:
        user.set_unusable_password()
        user.save()
        use(sent(user, now=now, kind=INVITATION), now=now)
        assert jobs("mail.send") == []

    def test_a_link_works_once(self, user: User, now: datetime) -> None:
        secret = sent(user, now=now)
        use(secret, now=now)
        with pytest.raises(LinkSpent):
            use(secret, now=now, password=PASSWORD)
        user.refresh_from_db()
        assert user.check_password(NEW)

    def test_a_poor_password_leaves_it_as_it_was(self, user: User, now: datetime) -> None:
        secret = sent(user, now=now)
        with pytest.raises(InvalidRequest) as refused:
            use(secret, now=now, password="password1234")
        assert {fault.pointer for fault in refused.value.errors} == {"/password"}
        use(secret, now=now)

    @pytest.mark.parametrize(("kind", "life"), [(RESET, 30 * MINUTES), (INVITATION, 72 * HOURS)])
    def test_a_link_lasts_as_long_as_its_mail_states(
        self, user: User, now: datetime, kind: PasswordLink.Kind, life: timedelta
    ) -> None:
        secret = sent(user, now=now, kind=kind)
        assert find_link(secret, now=now + life - timedelta(seconds=1))
        with pytest.raises(LinkSpent):
            find_link(secret, now=now + life)

    def test_only_the_newest_link_of_a_kind_is_valid(self, user: User, now: datetime) -> None:
        invited = sent(user, now=now, kind=INVITATION)
        first, second = sent(user, now=now), sent(user, now=now)
        with pytest.raises(LinkSpent):
            find_link(first, now=now)
        # Anybody who knows an email could otherwise void an invitation.
        assert find_link(invited, now=now)
        use(second, now=now)
        with pytest.raises(LinkSpent):
            find_link(invited, now=now)

    @pytest.mark.parametrize("what", ["password", "revoked", "email", "disabled", "again", "gone"])
    def test_a_link_is_void_once_its_person_has_changed(
        self, user: User, by: Actor, now: datetime, what: str
    ) -> None:
        secret = sent(user, now=now)
        if what == "password":
            set_password(user_id=user.pk, password=NEW, by=by, now=now)
        elif what == "revoked":
            revoke_all(user_id=user.pk, reason="stolen", by=by, now=now)
        elif what == "email":
            change_email(user_id=user.pk, email="x@acme.test", reason="x", by=by, now=now)
        elif what == "gone":
            user.delete()
        else:
            disable(user_id=user.pk, reason="left", by=by, now=now)
        if what == "again":
            enable(user_id=user.pk, reason="back", by=by, now=now)
        with pytest.raises(LinkSpent):
            use(secret, now=now)

    @pytest.mark.parametrize("nonsense", ["", "x", "a" * 43, "\ud800"])
    def test_a_text_that_is_no_link_is_answered_like_a_spent_one(
        self, user: User, now: datetime, nonsense: str
    ) -> None:
        sent(user, now=now)
        with pytest.raises(LinkSpent):
            find_link(nonsense, now=now)

    def test_old_ones_are_forgotten_when_a_new_one_is_made(self, user: User, now: datetime) -> None:
        sent(user, now=now - 3 * 24 * HOURS)
        sent(user, now=now)
        assert PasswordLink.objects.count() == 1

    @pytest.mark.parametrize("wrong", [{"expires_at": None}, {"kind": "other"}])
    def test_the_database_holds_a_link_to_its_form(
        self, user: User, now: datetime, wrong: dict[str, Any]
    ) -> None:
        fields = {"kind": "reset", "made_at": now, "expires_at": now + HOURS, **wrong}
        fields["expires_at"] = fields["expires_at"] or now
        with pytest.raises(IntegrityError), transaction.atomic():
            PasswordLink.objects.create(user=user, secret_hash="x", epoch=0, **fields)


@pytest.fixture
def _empty_queue() -> Iterator[None]:
    """The queue's tables are not Django's, so they are not emptied with the others."""
    yield
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE procrastinate_jobs CASCADE")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_empty_queue")
def test_one_of_many_concurrent_uses_sets_the_password(organisation: Client, now: datetime) -> None:
    user = User.objects.create_user("ada@acme.test", PASSWORD, client=organisation)
    secret = sent(user, now=now)
    passwords = [f"{NEW} {n}" for n in range(3)]
    results = race(*(lambda each=each: use(secret, now=now, password=each) for each in passwords))
    assert [type(each) for each in results].count(LinkSpent) == 2
    user.refresh_from_db()
    (won,) = [each for each in passwords if user.check_password(each)]
    assert isinstance(results[passwords.index(won)], int)
    assert AuditEvent.objects.filter(action="user:password_set").count() == 1
