"""Asking for a reset over HTTP, and the page behind the link."""

import logging
import re
from datetime import datetime
from time import monotonic
from typing import Any

import pytest
from django.core import mail
from django.db import OperationalError, connection
from procrastinate.contrib.django.models import ProcrastinateJob
from psycopg_pool import PoolTimeout
from rest_framework.test import APIClient

from accounts.models import PasswordLink, User
from accounts.people.password_links import DroppedResets, send_link
from config.platform.jobs.mail import send_mail
from config.platform.observability.logs import AllowListFormatter
from tests.conftest import PASSWORD, Browser

pytestmark = pytest.mark.django_db
NEW = "another good horse battery"
RESET = "/v1/auth/password/reset"
FORGOTTEN = "/account/forgotten"


@pytest.fixture
def address(user: User, now: datetime, settings: Any) -> str:
    """The path of a live link."""
    settings.BASE_URL = "https://shell.test"
    send_link(user_id=user.pk, kind=PasswordLink.Kind.RESET, now=now)
    found = re.search(r"https://shell\.test(/account/password/[\w-]+)", mail.outbox[-1].body)
    assert found
    return found[1]


# Characters that mail programs and people add to a link, or cut from it (letsencrypt/boulder#2094).
MORE = [".", "=", "%20", ")", ">", "%3E", "/", "%0A", "%E2%80%9D", ".%20", "x", "=3D", ",%20and"]
LESS = [slice(None, -1), slice(None, -20), slice(1, None), slice(None, 1)]


def given(password: str = NEW, again: str | None = None) -> dict[str, str]:
    return {"password": password, "again": password if again is None else again}


class TestAsking:
    def test_known_unknown_and_disabled_get_the_same_bytes(
        self, api: APIClient, user: User
    ) -> None:
        User.objects.create_user("left@acme.test", PASSWORD, is_active=False)
        emails = (user.email, user.email.upper(), "left@acme.test", "nobody@acme.test", "no email")
        answers = [
            api.post(RESET, {"email": email}, format="json", headers={"X-Request-ID": "same-id-1"})
            for email in emails
        ]
        assert {(each.status_code, each.content) for each in answers} == {(204, b"")}
        assert len({tuple(sorted(each.headers.items())) for each in answers}) == 1

    def test_a_request_without_the_database_can_be_made_again_later(
        self, api: APIClient, user: User
    ) -> None:
        def times_out(*_: object) -> None:
            # As Django passes on what its pool raises.
            raise OperationalError from PoolTimeout()

        with connection.execute_wrapper(times_out):
            answer = api.post(RESET, {"email": user.email}, format="json")
        assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
        assert int(answer["Retry-After"]) > 0
        assert api.post(RESET, {"email": user.email}, format="json").status_code == 204

    def test_no_more_are_queued_while_too_many_wait_whoever_is_meant(
        self,
        api: APIClient,
        user: User,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr("config.platform.jobs.queue.MAY_WAIT", 3)
        send_mail.defer(to=["ops@shell.test"], subject="Of others", text="It does not count.")
        for email in (user.email, user.email, "made.up@acme.test"):
            assert api.post(RESET, {"email": email}, format="json").status_code == 204
        monkeypatch.setattr("accounts.people.password_links.DROPPED", DroppedResets())
        answers = [
            api.post(RESET, {"email": email}, format="json", headers={"X-Request-ID": "same-id-1"})
            for email in (user.email, "nobody@acme.test")
        ]
        assert {(each.status_code, each.content) for each in answers} == {(204, b"")}
        assert len({tuple(sorted(each.headers.items())) for each in answers}) == 1
        resets = ProcrastinateJob.objects.filter(queue_name="resets")
        assert resets.count() == 3
        said = [each for each in caplog.records if each.name == "accounts.people.password_links"]
        assert [(each.levelname, each.getMessage()) for each in said] == [
            ("WARNING", "resets_dropped")
        ]
        assert not {user.email, "nobody@acme.test"} & {str(each) for each in vars(said[0]).values()}
        monkeypatch.setattr("accounts.people.password_links.monotonic", lambda: monotonic() + 61)
        api.post(RESET, {"email": user.email}, format="json")
        assert caplog.messages.count("resets_dropped") == 2
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE procrastinate_jobs SET status = 'doing' WHERE id = %s",
                [resets.earliest("id").pk],
            )
        assert api.post(RESET, {"email": user.email}, format="json").status_code == 204
        assert resets.count() == 4

    def test_nothing_is_looked_up_hashed_or_sent_in_the_request(
        self, api: APIClient, user: User, django_assert_num_queries: Any, monkeypatch: Any
    ) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("This is for the worker.")

        monkeypatch.setattr("accounts.models.User.objects.filter", refuse)
        monkeypatch.setattr("accounts.hashers.GatedArgon2Hasher.encode", refuse)
        for email in (user.email, "nobody@acme.test"):
            # Two queries: the number of waiting jobs, and one more.
            with django_assert_num_queries(2):
                assert api.post(RESET, {"email": email}, format="json").status_code == 204
        assert mail.outbox == []

    @pytest.mark.parametrize("body", [{}, {"email": ""}, {"email": 7}, {"email": "x" * 255}])
    def test_bad_input_is_pointed_at(self, api: APIClient, body: dict[str, Any]) -> None:
        response = api.post(RESET, body, format="json")
        assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, "/email")


class TestForgotten:
    def test_anybody_may_request_a_link_and_learns_nothing(
        self, stranger: Browser, user: User
    ) -> None:
        for email in (user.email, "nobody@acme.test"):
            answer = stranger.post(FORGOTTEN, {"email": email}, headers={"Origin": "null"})
            assert (answer.status_code, answer.headers["Location"]) == (302, f"{FORGOTTEN}?sent")
            assert not answer.cookies
        assert "on its way" in stranger.get(f"{FORGOTTEN}?sent").content.decode()
        queued = ProcrastinateJob.objects.filter(queue_name="resets").order_by("id")
        assert [job.args["email"] for job in queued] == [user.email, "nobody@acme.test"]

    @pytest.mark.parametrize("email", ["", "nobody", "x" * 260 + "@acme.test", "a@b\0"])
    def test_a_wrong_email_is_refused_at_its_field(self, stranger: Browser, email: str) -> None:
        answer = stranger.post(FORGOTTEN, {"email": email})
        assert answer.status_code == 200
        assert 'id="id_email_error"' in answer.content.decode()

    def test_the_console_leads_there(self, stranger: Browser) -> None:
        assert f'href="{FORGOTTEN}"' in stranger.get("/admin/login/").content.decode()


class TestPage:
    def test_looking_consumes_nothing(self, stranger: Browser, address: str) -> None:
        for method in (stranger.get, stranger.head, stranger.get):
            response = method(address)
            assert response.status_code == 200
        assert "ada@acme.test" in response.content.decode()
        assert PasswordLink.objects.get().used_at is None
        assert not response.cookies

    def test_the_pages_have_no_referrer_no_cache_and_a_strict_policy(
        self, stranger: Browser, address: str
    ) -> None:
        for response in (
            stranger.get(address),
            stranger.post(address, given("x")),
            stranger.get(f"/account/password/{'a' * 43}"),
            stranger.get("/account/password/set"),
            stranger.post(address, given()),
        ):
            assert response.headers["Referrer-Policy"] == "no-referrer"
            assert response.headers["Cache-Control"] == "no-store"
            policy = response.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; ")
            assert "unsafe" not in policy
            page = response.content.decode()
            assert re.findall(r'(?:src|href|action)="(?!/static/account/)', page) == []
            assert "<script" not in page
            assert "style=" not in page

    def test_the_page_sets_the_password_and_redirects_away_from_the_secret(
        self, stranger: Browser, address: str, user: User
    ) -> None:
        # Browsers send this under `Referrer-Policy: no-referrer`.
        response = stranger.post(address, given(), headers={"Origin": "null"})
        assert (response.status_code, response.headers["Location"]) == (
            302,
            "/account/password/set",
        )
        assert not response.cookies
        user.refresh_from_db()
        assert user.check_password(NEW)
        again = stranger.post(address, given("and another one, later"))
        assert again.status_code == 404
        assert "no longer works" in again.content.decode()

    @pytest.mark.parametrize(
        ("form", "field", "said"),
        [
            ({}, "password", "This field is required."),
            (given("Zy7-quux"), "password", "too short"),
            (given("password1234"), "password", "too common"),
            (given("é" * 1025), "password", "at most 1024"),
            (given("ada@acme.test"), "password", "easy to guess"),
            (given(NEW, "something else"), "again", "do not match"),
            (given(f"{NEW}\0"), "password", "Null characters"),
        ],
    )
    def test_a_refusal_stands_at_its_field_and_consumes_nothing(
        self, stranger: Browser, address: str, form: dict[str, str], field: str, said: str
    ) -> None:
        response = stranger.post(address, form)
        page = response.content.decode()
        assert response.status_code == 200
        errors = re.search(
            rf'<ul class="errorlist" id="id_{field}_error">(.*?)</ul>', page, re.DOTALL
        )
        assert errors
        assert said in errors[1]
        (entry,) = re.findall(rf'<input [^>]*id="id_{field}"[^>]*>', page)
        assert f"id_{field}_error" in entry
        assert 'aria-invalid="true"' in entry
        assert "autofocus" in entry
        assert 'role="alert"' in page
        assert not form.get("password") or form["password"] not in page.replace("ada@acme.test", "")
        assert stranger.post(address, given()).status_code == 302

    def test_spaces_of_a_password_count(self, stranger: Browser, address: str, user: User) -> None:
        stranger.post(address, given(f"  {NEW} "))
        user.refresh_from_db()
        assert user.check_password(f"  {NEW} ")

    @pytest.mark.parametrize("path", ["a" * 43, "a" * 42, "a" * 44, "", "é" * 43])
    def test_a_wrong_link_is_not_found(self, stranger: Browser, path: str, address: str) -> None:
        assert stranger.get(f"/account/password/{path}").status_code == 404

    @pytest.mark.parametrize("more", MORE)
    def test_text_after_a_link_is_no_part_of_it(
        self, stranger: Browser, address: str, user: User, more: str
    ) -> None:
        assert stranger.get(f"{address}{more}").status_code == 200
        response = stranger.post(f"{address}{more}", given())
        assert (response.status_code, response["Location"]) == (302, "/account/password/set")
        user.refresh_from_db()
        assert user.check_password(NEW)

    @pytest.mark.parametrize("kept", LESS, ids=str)
    @pytest.mark.parametrize("more", ["", ".", "%20", "="])
    def test_a_link_that_lost_a_part_gets_the_page_that_says_what_to_do(
        self, stranger: Browser, address: str, kept: slice, more: str
    ) -> None:
        folder, _, signs = address.rpartition("/")
        for method in (stranger.get, stranger.post):
            response = method(f"{folder}/{signs[kept]}{more}")
            assert response.status_code == 404
            assert "Open it from the email itself" in response.content.decode()
        assert PasswordLink.objects.get().used_at is None

    def test_the_host_a_request_names_is_in_no_mail(
        self, api: APIClient, user: User, settings: Any
    ) -> None:
        settings.BASE_URL, settings.ALLOWED_HOSTS = "https://shell.test", ["*"]
        from_elsewhere = {"Host": "evil.test", "X-Forwarded-Host": "evil.test"}
        api.post(RESET, {"email": user.email}, format="json", headers=from_elsewhere)
        send_link(user_id=user.pk, kind=PasswordLink.Kind.RESET, now=datetime.now().astimezone())
        assert "https://shell.test/account/" in mail.outbox[-1].body
        assert "evil" not in mail.outbox[-1].message().as_string()

    def test_forms_are_limited_by_address(
        self, stranger: Browser, address: str, settings: Any
    ) -> None:
        settings.RATE_LIMITS = {"auth.ip": "2/h"}
        statuses = [stranger.post(address, given("x")).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert stranger.get(address).status_code == 200

    def test_the_secret_is_in_no_log(
        self,
        stranger: Browser,
        address: str,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        caplog.set_level(logging.DEBUG)
        # The handler is one for all tests, so what is changed of it has to be put back.
        monkeypatch.setattr(caplog.handler, "formatter", AllowListFormatter())
        for response in (
            stranger.get(address),
            stranger.post(address, given("x")),
            stranger.post(address, given()),
            stranger.get(address),
        ):
            response.close()
        lines = caplog.text
        assert '"route":"account:password"' in lines
        assert address.rpartition("/")[2] not in lines
        assert NEW not in lines
