"""One-time passwords: what they end, what they open, and how often."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.hashers import check_password
from django.db import connection
from procrastinate.contrib.django.models import ProcrastinateJob
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, PasswordLink, Session, User
from accounts.people.access import disable
from accounts.people.one_time_passwords import (
    LENGTH,
    OneTime,
    find_one_time,
    set_one_time_password,
)
from accounts.people.password_links import Disabled, LinkSpent, find_link, use_link
from accounts.sessions.revocation import revoke_all
from accounts.sessions.sign_in import Device, InvalidCredentials, TokenPair, sign_in
from accounts.typed_codes import LETTERS
from config.platform.problems.problem import InvalidRequest, instant
from config.platform.text.forms import email_form
from tests.conftest import PASSWORD, Browser
from tests.races import race

NEW = "another good horse battery"
PAGE = "/account/password"


def made(user: User, *, by: Actor, now: datetime) -> OneTime:
    return set_one_time_password(user_id=user.pk, reason="No mail arrives.", by=by, now=now)


def use(user: User, one_time: str, *, now: datetime, password: str = NEW) -> int:
    secret = find_one_time(email=user.email, password=one_time, now=now)
    return use_link(
        presented=secret, password=password, address="192.0.2.9", request_id="r", now=now
    )


@pytest.mark.django_db
class TestRule:
    def test_a_one_time_password_replaces_the_password_and_ends_every_session(
        self, user: User, pair: TokenPair, by: Actor, now: datetime
    ) -> None:
        one_time = made(user, by=by, now=now)
        assert one_time.ended == 1
        assert Session.objects.get().ended_by == Session.Ended.PASSWORD
        for password in (PASSWORD, one_time.password, one_time.password.replace("-", "")):
            with pytest.raises(InvalidCredentials):
                sign_in(email=user.email, password=password, device=Device(), now=now)

    def test_a_one_time_password_sets_a_password_once(
        self, user: User, signing_key: None, by: Actor, now: datetime
    ) -> None:
        one_time = made(user, by=by, now=now)
        use(user, one_time.password, now=now)
        assert sign_in(email=user.email, password=NEW, device=Device(), now=now).access
        with pytest.raises(LinkSpent):
            use(user, one_time.password, now=now)

    def test_a_one_time_password_has_112_random_bits_in_letters_that_can_be_read_out(
        self, user: User, by: Actor, now: datetime
    ) -> None:
        passwords = {made(user, by=by, now=now).password for _ in range(20)}
        assert len(passwords) == 20
        assert len(LETTERS) == 32
        for each in passwords:
            assert re.fullmatch(rf"([{LETTERS}]{{4}}-){{5}}[{LETTERS}]{{3}}", each)
            assert len(each.replace("-", "")) == LENGTH == 23

    @pytest.mark.parametrize("typed", ["{}", " {} ", "{} ", "\t{}\n"])
    def test_the_way_it_is_typed_does_not_matter(
        self, user: User, by: Actor, now: datetime, typed: str
    ) -> None:
        password = made(user, by=by, now=now).password
        misread = password.replace("0", "o").replace("1", "l").replace("-", " ").lower()
        for each in (password, misread, password.replace("-", "")):
            assert find_one_time(email=user.email.upper(), password=typed.format(each), now=now)

    def test_a_one_time_password_lasts_a_day(self, user: User, by: Actor, now: datetime) -> None:
        one_time = made(user, by=by, now=now)
        assert one_time.expires_at == now + timedelta(hours=24)
        with pytest.raises(LinkSpent):
            use(user, one_time.password, now=now + timedelta(hours=24))
        use(user, one_time.password, now=now + timedelta(hours=24, seconds=-1))

    def test_only_the_newest_one_time_password_is_valid(
        self, user: User, by: Actor, now: datetime
    ) -> None:
        first, second = made(user, by=by, now=now), made(user, by=by, now=now)
        with pytest.raises(LinkSpent):
            use(user, first.password, now=now)
        use(user, second.password, now=now)

    @pytest.mark.parametrize("what", ["revoked", "disabled", "anothers"])
    def test_a_one_time_password_is_valid_for_its_enabled_person_alone(
        self, user: User, organisation: Client, by: Actor, now: datetime, what: str
    ) -> None:
        one_time = made(user, by=by, now=now)
        if what == "revoked":
            revoke_all(user_id=user.pk, reason="stolen", by=by, now=now)
        elif what == "disabled":
            disable(user_id=user.pk, reason="left", by=by, now=now)
        else:
            user = User.objects.create_user("bob@acme.test", PASSWORD, client=organisation)
        with pytest.raises(LinkSpent):
            use(user, one_time.password, now=now)

    def test_a_mailed_links_secret_is_none(self, user: User, by: Actor, now: datetime) -> None:
        one_time = made(user, by=by, now=now).password.replace("-", "")
        PasswordLink.objects.update(kind=PasswordLink.Kind.RESET)
        assert find_link(one_time, now=now)
        with pytest.raises(LinkSpent):
            find_one_time(email=user.email, password=one_time, now=now)

    def test_audit_and_mail_of_a_one_time_password_do_not_contain_it(
        self, user: User, by: Actor, now: datetime
    ) -> None:
        one_time = made(user, by=by, now=now)
        event = AuditEvent.objects.get(action="user:one_time_password_set")
        assert (event.actor, event.target, event.reason) == (
            by.name,
            user.email,
            "No mail arrives.",
        )
        assert event.after == {"expires_at": instant(PasswordLink.objects.get().expires_at)}
        assert AuditEvent.objects.filter(action="user:tokens_revoked").count() == 1
        (notice,) = ProcrastinateJob.objects.filter(task_name="mail.send")
        assert notice.args["to"] == [user.email]
        assert notice.args["subject"] == "You were given a one-time password"
        use(user, one_time.password, now=now)
        assert (
            AuditEvent.objects.get(action="user:password_set").reason == "By a one-time password."
        )
        kept = [
            *AuditEvent.objects.values(),
            *ProcrastinateJob.objects.values(),
            *PasswordLink.objects.values(),
            *User.objects.values(),
        ]
        assert one_time.password not in str(kept)
        assert one_time.password.replace("-", "") not in str(kept)

    def test_a_one_time_password_needs_a_reason_and_a_person_who_may_sign_in(
        self, user: User, by: Actor, now: datetime
    ) -> None:
        with pytest.raises(InvalidRequest):
            set_one_time_password(user_id=user.pk, reason=" ", by=by, now=now)
        disable(user_id=user.pk, reason="left", by=by, now=now)
        with pytest.raises(Disabled):
            made(user, by=by, now=now)
        user.refresh_from_db()
        assert check_password(PASSWORD, user.password)


@pytest.mark.django_db
class TestPage:
    def test_the_page_sets_the_password_and_reveals_nothing_to_others(
        self, stranger: Browser, user: User, by: Actor, now: datetime, api: APIClient
    ) -> None:
        one_time = made(user, by=by, now=now).password
        shown = stranger.get(PAGE)
        assert shown.status_code == 200
        form = {"email": user.email, "one_time": one_time.lower(), "password": NEW, "again": NEW}
        done = stranger.post(PAGE, form, headers={"Origin": "null"})
        assert (done.status_code, done["Location"]) == (302, "/account/password/set")
        for response in (shown, done):
            assert response["Referrer-Policy"] == "no-referrer"
            assert response["Cache-Control"] == "no-store"
            assert response["Content-Security-Policy"].startswith("default-src 'none'; ")
            assert not response.cookies
        user.refresh_from_db()
        assert user.check_password(NEW)

    @pytest.mark.parametrize(
        ("change", "field", "said"),
        [
            ({"one_time": "0000-0000-0000-0000-0000"}, "one_time", "one-time password is wrong"),
            ({"email": "bob@acme.test"}, "one_time", "one-time password is wrong"),
            ({"email": "nonsense"}, "email", "valid email"),
            ({"password": "ada@acme.test", "again": "ada@acme.test"}, "password", "easy to guess"),
            ({"again": "something else"}, "again", "do not match"),
            ({"one_time": "\0"}, "one_time", "Null characters"),
            ({"one_time": ""}, "one_time", "required"),
        ],
    )
    def test_a_refusal_stands_at_its_field_and_consumes_nothing(
        self,
        stranger: Browser,
        user: User,
        by: Actor,
        now: datetime,
        change: dict[str, str],
        field: str,
        said: str,
    ) -> None:
        one_time = made(user, by=by, now=now).password
        form = {"email": user.email, "one_time": one_time, "password": NEW, "again": NEW}
        refused = stranger.post(PAGE, {**form, **change})
        page = refused.content.decode()
        assert refused.status_code == 200
        errors = re.search(
            rf'<ul class="errorlist" id="id_{field}_error">(.*?)</ul>', page, re.DOTALL
        )
        assert errors
        assert said in errors[1]
        (entry,) = re.findall(rf'<input [^>]*id="id_{field}"[^>]*>', page)
        assert 'aria-invalid="true"' in entry
        assert "autofocus" in entry
        assert NEW not in page
        assert stranger.post(PAGE, form).status_code == 302

    def test_guesses_are_limited_by_address(self, stranger: Browser, settings: Any) -> None:
        settings.RATE_LIMITS = {"auth.ip": "2/h"}
        assert [stranger.post(PAGE, {}).status_code for _ in range(3)] == [200, 200, 429]


@pytest.fixture
def _empty_queue() -> Iterator[None]:
    """The queue's tables are not Django's, so they are not emptied with the others."""
    yield
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE procrastinate_jobs CASCADE")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_empty_queue")
def test_one_of_many_concurrent_uses_sets_the_password(
    organisation: Client, by: Actor, now: datetime
) -> None:
    user = User.objects.create_user("ada@acme.test", PASSWORD, client=organisation)
    one_time = made(user, by=by, now=now).password
    results = race(
        *(lambda n=n: use(user, one_time, now=now, password=f"{NEW} {n}") for n in range(3))
    )
    assert [type(each) for each in results].count(LinkSpent) == 2


@pytest.mark.parametrize(
    ("stored", "typed"),
    [
        ("j\u00f6rg@acme.test", "J\u00d6RG@acme.test"),
        ("j\u00f6rg@acme.test", "jo\u0308rg@acme.test"),
        ("\u7528\u6237@b\u00fccher.example", "\u7528\u6237@xn--bcher-kva.example"),
        ("o'neil@acme.test", " O'Neil@ACME.test "),
    ],
)
def test_the_page_takes_every_email_that_a_person_has(
    user: User, by: Actor, now: datetime, stored: str, typed: str
) -> None:
    """No mail may reach it, so this page is the way in."""
    User.objects.filter(pk=user.pk).update(email=stored, email_form=email_form(stored))
    one_time = made(user, by=by, now=now).password
    given = {"email": typed, "one_time": one_time, "password": NEW, "again": NEW}
    answer = Browser().post(PAGE, given)
    assert answer.status_code == 302
    user.refresh_from_db()
    assert user.check_password(NEW)


@pytest.mark.parametrize(
    "typed", ["nobody", "nobody@acme.test", "a\x00b@acme.test", "@", "x" * 300]
)
def test_the_page_refuses_every_other_email_without_details(
    user: User, by: Actor, now: datetime, typed: str
) -> None:
    given = {"email": typed, "one_time": made(user, by=by, now=now).password}
    answer = Browser().post(PAGE, {**given, "password": NEW, "again": NEW})
    assert answer.status_code == 200
    user.refresh_from_db()
    assert not user.has_usable_password()
