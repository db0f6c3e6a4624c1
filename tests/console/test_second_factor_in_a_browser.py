"""The second factor in Chromium with a virtual authenticator, under the console's policy, on http://localhost."""

import re
import time
from base64 import b32decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import connection
from django.urls import reverse
from django.utils import timezone
from django_otp.oath import TOTP
from playwright.sync_api import Browser, Page, Route, expect
from pytest_django.fixtures import Settings

from accounts.audit import Actor
from accounts.factors.setting_up import make_set_up_code
from accounts.models import AuditEvent, Authenticator, ConsoleSession, User
from config.platform.session_store import SessionStore
from tests.browsers import LONGEST, chromium, note_complaints
from tests.conftest import PASSWORD

pytestmark = [pytest.mark.wire, pytest.mark.django_db(transaction=True)]

AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}

ENDS_ALL = "End all sessions"
CLICKS, CLICK_MILLISECONDS = 10, 5_000
LATE_SECONDS = 1


@pytest.fixture
def base_url(settings: Settings, request: pytest.FixtureRequest) -> str:
    """A server over plain http that is told so before it starts; passkeys take localhost for safe."""
    settings.SECURE_SSL_REDIRECT = False
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = False
    settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME = "sessionid", "csrftoken"
    settings.OPERATOR_SECOND_FACTOR = True
    server = urlsplit(request.getfixturevalue("live_server").url)
    address = f"http://localhost:{server.port}"
    settings.OTP_WEBAUTHN_RP_ID = "localhost"
    settings.OTP_WEBAUTHN_ALLOWED_ORIGINS = [address]
    return address


@dataclass
class Desk:
    """Browsers of one operator. What a browser complains of fails the test, a violation of the policy included."""

    base_url: str
    browser: Browser
    complaints: list[str] = field(default_factory=list)

    def page(self) -> Page:
        """A new browser without cookies or passkeys."""
        page = self.browser.new_context(base_url=self.base_url).new_page()
        page.set_default_timeout(LONGEST)
        note_complaints(page, self.complaints)
        session = page.context.new_cdp_session(page)
        session.send("WebAuthn.enable")
        session.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
        return page


@contextmanager
def desk(base_url: str) -> Iterator[Desk]:
    """The database is looked at outside: the browser's driver does not let Django ask in between."""
    with chromium() as browser:
        found = Desk(base_url, browser)
        yield found
    assert found.complaints == []


def rows(look: Callable[[], Any]) -> Any:
    """Reads or changes rows while a browser is open, in a thread of its own."""

    def run() -> Any:
        try:
            return look()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


def give_password(page: Page, operator: User) -> None:
    page.goto("/admin/")
    page.get_by_label("Email").fill(operator.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Continue").click()


def enter_set_up_code(page: Page, operator: User) -> None:
    expect(page.get_by_role("heading", name="Set up a second factor")).to_be_visible()
    expect(page.get_by_role("link", name="Clients")).to_have_count(0)
    by, now = Actor(name="a colleague"), timezone.now()
    code = rows(lambda: make_set_up_code(user_id=operator.pk, by=by, now=now))
    page.get_by_label("Code").fill(code)
    page.get_by_role("button", name="Continue").click()


def keep_recovery_codes(page: Page) -> list[str]:
    page.get_by_role("button", name="Create recovery codes").click()
    expect(page.locator(".recovery-codes li")).to_have_count(10)
    codes = page.locator(".recovery-codes code").all_inner_texts()
    page.get_by_role("link", name="I have saved them").click()
    expect_console(page)
    return codes


def set_up_passkey(page: Page, operator: User) -> list[str]:
    give_password(page, operator)
    enter_set_up_code(page, operator)
    press(page, "Add a passkey")
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    return keep_recovery_codes(page)


def press(page: Page, name: str) -> None:
    """Clicks as a person does: again where the page was still moving under the first click."""
    button = page.get_by_role("button", name=name)
    for _ in range(CLICKS):
        button.click()
        with suppress(AssertionError):
            expect(button).to_have_count(0, timeout=CLICK_MILLISECONDS)
            return
    raise AssertionError("The button does nothing.")


def expect_console(page: Page) -> None:
    expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()


def open_own_page(page: Page) -> None:
    """Opens it from a whole page, for a script that is cut by a click is a complaint of those after it."""
    page.wait_for_load_state("load")
    page.locator("details.operator summary").click()
    page.get_by_role("link", name="Your sign-in").click()
    expect(page).to_have_title(re.compile("^Your sign-in"))
    page.wait_for_load_state("load")


def log_out(page: Page) -> None:
    page.locator("details.operator summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()


def put_away(page: Page) -> None:
    """Leaves the console, for a script that is asked for after the session's end is a sign-in page and a complaint."""
    page.wait_for_load_state("load")
    page.goto("about:blank")


def expect_sign_in(page: Page) -> None:
    page.goto("/admin/")
    expect(page.get_by_role("button", name="Continue")).to_be_visible()


def age_proofs() -> None:
    for row in Session.objects.all():
        data = row.get_decoded()
        data["factor_proved_at"] = data.get("factor_proved_at", 0) - 11 * 60
        row.session_data = SessionStore().encode(data)
        row.save()


def acts() -> list[str]:
    found = AuditEvent.objects.filter(action__startswith="operator:").order_by("pk")
    return [each.action.removeprefix("operator:") for each in found]


def test_a_passkey_is_set_up_signs_in_and_is_asked_for_again_before_grave_acts(
    base_url: str, operator: User, user: User
) -> None:
    with desk(base_url) as there:
        page = there.page()
        set_up_passkey(page, operator)
        log_out(page)
        give_password(page, operator)
        expect(page.get_by_role("heading", name="Confirm that it is you")).to_be_visible()
        press(page, "Use a passkey")
        expect_console(page)
        grave = reverse("admin:accounts_user_revoke", args=[user.pk])
        page.goto(grave)
        expect(page.get_by_label("Reason")).to_be_visible()
        page.get_by_label("Reason").fill("Laptop lost.")
        # The proof ages while the operator types: nothing of it is lost, and nothing is done by itself.
        rows(age_proofs)
        page.get_by_role("button", name=ENDS_ALL).click()
        expect(page.locator(".messagelist")).to_contain_text("more than 10 minutes ago")
        expect(page.locator(".messagelist")).to_contain_text("What you typed is kept")
        press(page, "Use a passkey")
        expect(page.locator(".messagelist")).to_contain_text("Nothing has been done yet")
        expect(page.get_by_label("Reason")).to_have_value("Laptop lost.")
        assert rows(AuditEvent.objects.filter(action="user:tokens_revoked").count) == 0
        page.get_by_role("button", name=ENDS_ALL).click()
        expect(page.locator(".messagelist")).to_contain_text("No session was open.")
        assert rows(AuditEvent.objects.filter(action="user:tokens_revoked").count) == 1
        open_own_page(page)
        name = page.get_by_label(re.compile("^Name of Passkey of"))
        name.fill("Blue laptop")
        page.get_by_role("button", name="Rename").click()
        expect(page.get_by_label("Name of Blue laptop")).to_be_visible()
    assert acts() == [
        "password_accepted", "set_up_code_made", "set_up_code_used", "factor_added", "signed_in",
        "recovery_codes_made", "signed_out", "password_accepted", "signed_in", "factor_proved", "factor_renamed",
    ]  # fmt: skip


def test_a_passkey_is_used_where_the_words_of_its_script_come_late(
    base_url: str, operator: User
) -> None:
    def late(route: Route) -> None:
        time.sleep(LATE_SECONDS)
        route.continue_()

    with desk(base_url) as there:
        page = there.page()
        page.route("**/texts/", late)
        set_up_passkey(page, operator)
        log_out(page)
        give_password(page, operator)
        press(page, "Use a passkey")
        expect_console(page)


def test_sessions_end_when_idle_after_twelve_hours_and_by_their_operator(
    base_url: str, operator: User
) -> None:
    with desk(base_url) as there:
        page, other = there.page(), there.page()
        codes = set_up_passkey(page, operator)
        give_password(other, operator)
        other.get_by_role("link", name="Use a recovery code").click()
        other.get_by_label("Code").fill(codes[0])
        other.get_by_role("button", name="Continue").click()
        expect_console(other)
        # A link within a sentence stays there.
        within = other.get_by_role("link", name="remove it and add a new one")
        expect(within).to_have_css("float", "none")
        put_away(other)
        open_own_page(page)
        ends = page.get_by_role("button", name=re.compile("^End the session"))
        expect(ends).to_have_count(2)
        theirs = page.get_by_role("listitem").filter(has=ends).filter(has_not_text="This one")
        theirs.get_by_role("button").click()
        expect(ends).to_have_count(1)
        put_away(page)
        expect_sign_in(other)
        now = timezone.now()
        idle = now - timedelta(minutes=31)
        rows(lambda: ConsoleSession.objects.update(last_used_at=idle))
        expect_sign_in(page)
        expect(page.get_by_text("30 minutes without use")).to_be_visible()
        give_password(page, operator)
        press(page, "Use a passkey")
        expect_console(page)
        put_away(page)
        old = now - timedelta(hours=12, seconds=1)
        rows(lambda: ConsoleSession.objects.update(started_at=old))
        expect_sign_in(page)


def test_an_app_is_set_up_by_its_key_and_a_lost_one_is_reset(base_url: str, operator: User) -> None:
    def code(of: str) -> str:
        codes = TOTP(b32decode(of))
        return f"{codes.token():06}"

    with desk(base_url) as there:
        page = there.page()
        give_password(page, operator)
        enter_set_up_code(page, operator)
        page.get_by_role("link", name="Add an authenticator app").click()
        picture = page.get_by_alt_text("The key as a QR code")
        expect(picture).to_be_visible()
        page.wait_for_load_state()
        assert picture.evaluate("image => image.naturalWidth") > 100
        key = page.locator("#key").inner_text().replace("-", "")
        page.get_by_label("Name").fill("Phone")
        page.get_by_label("Code").fill("000000")
        page.get_by_role("button", name="Add this app").click()
        expect(page.locator(".errorlist")).to_contain_text("not the code")
        rows(lambda: Authenticator.objects.update(throttling_failure_count=0))
        page.get_by_label("Code").fill(code(key))
        page.get_by_role("button", name="Add this app").click()
        keep_recovery_codes(page)
        log_out(page)
        give_password(page, operator)
        # The code of now has been used, and the next one may be half a minute away.
        rows(lambda: Authenticator.objects.update(last_step=-1))
        page.get_by_label("Code").fill(code(key))
        page.get_by_role("button", name="Continue").click()
        expect_console(page)
        put_away(page)
        rows(lambda: call_command("reset_second_factor", operator.email))
        expect_sign_in(page)
        give_password(page, operator)
        expect(page.get_by_role("heading", name="Set up a second factor")).to_be_visible()
