"""Coming in to the console and leaving it."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest
from django.contrib.auth import SESSION_KEY
from django.db import connection, transaction
from django.http import HttpResponse
from django.test import override_settings

from accounts.audit import Actor
from accounts.models import AuditEvent, User
from accounts.people.access import delete_user
from tests.accounts.test_access_races import until_somebody_waits
from tests.conftest import PASSWORD, Browser

pytestmark = pytest.mark.django_db

NEW = "another good horse battery"
REFUSED = "Wrong email or password."


def sign_in(browser: Browser, email: str, password: str = PASSWORD) -> str:
    response = browser.post("/admin/login/", {"username": email, "password": password})
    return "in" if response.status_code == 302 else response.content.decode()


def test_an_operator_signs_in_and_out_and_both_are_written_down(
    stranger: Browser, operator: User
) -> None:
    assert sign_in(stranger, "Operator@SHELL.test") == "in"
    assert stranger.get("/admin/").status_code == 200
    assert "Clear-Site-Data" not in stranger.get("/admin/logout/").headers
    left = stranger.post("/admin/logout/")
    assert (left.status_code, left["Clear-Site-Data"]) == (200, '"cache", "storage"')
    assert SESSION_KEY not in stranger.session
    out, came = AuditEvent.objects.filter(action__startswith="operator:")
    assert (came.action, out.action) == ("operator:signed_in", "operator:signed_out")
    for event in (came, out):
        assert (event.actor, event.actor_id) == (operator.email, operator.pk)
        assert (event.target_id, event.address) == (str(operator.pk), Browser.address)


def test_every_page_says_which_environment_it_is_of(
    stranger: Browser, console: Browser, settings
) -> None:
    pages = [(stranger, "/admin/login/"), (console, "/admin/"), (console, "/admin/accounts/user/")]
    for each, path in pages:
        assert 'class="environment"' not in each.get(path).content.decode()
    settings.ENVIRONMENT_NAME = "Staging <EU>"
    for each, path in pages:
        page = each.get(path).content.decode()
        assert page.count('class="environment"') == 1
        assert "Staging &lt;EU&gt;</span>" in page.partition("</header>")[0]


def test_the_cookies_are_of_this_host_alone(stranger: Browser, operator: User) -> None:
    stranger.get("/admin/login/")
    assert sign_in(stranger, operator.email) == "in"
    assert set(stranger.cookies) == {"__Host-csrftoken", "__Host-sessionid"}
    for cookie in stranger.cookies.values():
        assert (cookie["secure"], cookie["path"], cookie["domain"]) == (True, "/", "")


def test_refusals_look_alike_and_give_no_session(
    stranger: Browser, operator: User, user: User
) -> None:
    disabled = User.objects.create_superuser("gone@shell.test", PASSWORD, is_active=False)
    answers = [
        sign_in(stranger, "nobody@shell.test"),
        sign_in(stranger, operator.email, "wrong " + PASSWORD),
        sign_in(stranger, user.email),
        sign_in(stranger, disabled.email),
    ]
    for answer in answers:
        assert REFUSED in answer
    assert SESSION_KEY not in stranger.session
    events = AuditEvent.objects.filter(action__startswith="operator:").order_by("pk")
    assert {event.action for event in events} == {"operator:sign_in_refused"}
    assert [event.target for event in events] == ["", operator.email, user.email, disabled.email]
    for event in events:
        assert (event.actor, event.actor_id, event.address) == (
            "unknown caller",
            None,
            Browser.address,
        )


def test_the_text_typed_for_an_email_is_not_kept_as_it_may_be_a_password(
    stranger: Browser, operator: User
) -> None:
    sign_in(stranger, PASSWORD, "wrong")
    sign_in(stranger, operator.email, PASSWORD + " mistyped")
    assert AuditEvent.objects.filter(action="operator:sign_in_refused").count() == 2
    assert PASSWORD not in str(list(AuditEvent.objects.values()))


def test_a_form_without_a_password_was_no_attempt(stranger: Browser, operator: User) -> None:
    sign_in(stranger, operator.email, "")
    assert not AuditEvent.objects.exists()


@override_settings(RATE_LIMITS={"auth.account": "2/m"})
def test_a_flood_of_failures_does_not_fill_the_log(stranger: Browser, operator: User) -> None:
    for _ in range(5):
        sign_in(stranger, operator.email, "wrong")
    assert AuditEvent.objects.filter(action="operator:sign_in_refused").count() == 2


def test_the_password_that_was_typed_is_not_given_back(stranger: Browser, operator: User) -> None:
    assert "wrong " + PASSWORD not in sign_in(stranger, operator.email, "wrong " + PASSWORD)


@pytest.mark.parametrize("email", ["", "\x00", "a" * 5000, "not an email"])
def test_odd_emails_are_refused(stranger: Browser, operator: User, email: str) -> None:
    assert "<form" in sign_in(stranger, email)


@override_settings(RATE_LIMITS={"auth.account": "2/m"})
def test_failures_count_for_the_account_whoever_fails(stranger: Browser, operator: User) -> None:
    for _ in range(2):
        assert REFUSED in sign_in(stranger, operator.email, "wrong")
    refused = stranger.post("/admin/login/", {"username": operator.email, "password": PASSWORD})
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) > 0
    other = User.objects.create_superuser("second@shell.test", PASSWORD)
    assert sign_in(stranger, other.email) == "in"


def test_signing_in_leads_nowhere_else(stranger: Browser, operator: User) -> None:
    form = {"username": operator.email, "password": PASSWORD, "next": "https://elsewhere.test/"}
    assert stranger.post("/admin/login/", form)["Location"] == "/admin/"


def test_an_operator_changes_his_own_password_and_stays(
    console: Browser, operator: User, stranger: Browser
) -> None:
    stranger.force_login(operator)
    form = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW}
    assert console.post("/admin/password_change/", form).status_code == 302
    assert console.get("/admin/").status_code == 200
    assert stranger.get("/admin/").status_code == 302
    operator.refresh_from_db()
    assert operator.check_password(NEW)
    event = AuditEvent.objects.get(action="user:password_set")
    assert (event.actor_id, event.address) == (operator.pk, Browser.address)
    assert NEW not in str(list(AuditEvent.objects.values()))


@pytest.mark.parametrize(
    "change",
    [{"old_password": "wrong"}, {"new_password1": "short", "new_password2": "short"}],
)
def test_a_wrong_or_poor_password_changes_nothing(
    console: Browser, operator: User, change: dict[str, str]
) -> None:
    form = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW, **change}
    assert console.post("/admin/password_change/", form).status_code == 200
    operator.refresh_from_db()
    assert operator.check_password(PASSWORD)


@pytest.mark.django_db(transaction=True)
def test_a_person_deleted_while_they_change_their_password_is_asked_to_sign_in(
    console: Browser, operator: User, by: Actor, now: datetime
) -> None:
    User.objects.create_superuser("second@shell.test")
    form = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW}

    def change() -> HttpResponse:
        answer = console.post("/admin/password_change/", form)
        connection.close()
        return answer

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            delete_user(user_id=operator.pk, reason="x", by=by, now=now)
            answer = pool.submit(change)
            until_somebody_waits()
        asked = answer.result(100)
    assert (asked.status_code, asked["Location"]) == (
        302,
        "/admin/login/?next=/admin/password_change/",
    )
    assert console.get(asked["Location"]).status_code == 200


def test_no_page_may_be_framed_or_kept(console: Browser) -> None:
    response = console.get("/admin/")
    assert response["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in response["Content-Security-Policy"]
    assert "no-store" in response["Cache-Control"]


def test_the_login_form_is_guarded_too(stranger: Browser) -> None:
    response = stranger.get("/admin/login/")
    assert "default-src 'none'" in response["Content-Security-Policy"]
    assert "no-store" in response["Cache-Control"]


def test_an_unknown_address_is_a_page_not_a_trace(console: Browser) -> None:
    response = console.get("/admin/nothing/here/")
    assert response.status_code == 404
    assert response["Content-Type"].startswith("text/html")
