"""The page that sets a password as a person sees it: in Chromium, with scripts switched off."""

import re
from datetime import datetime
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from playwright.sync_api import expect

from accounts.models import Client, PasswordLink, User
from accounts.people.password_links import send_link
from tests.browsers import LONGEST, chromium, note_complaints
from tests.conftest import PASSWORD

pytestmark = [pytest.mark.wire, pytest.mark.django_db(transaction=True)]
NEW = "another good horse battery"


@pytest.fixture
def base_url(settings: Any, request: pytest.FixtureRequest) -> str:
    """A server over plain http, which is told so before it starts."""
    settings.SECURE_SSL_REDIRECT = False
    address: str = request.getfixturevalue("live_server").url
    settings.BASE_URL = address
    return address


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scripts", [False, True])
def test_a_person_sets_a_password(
    base_url: str, organisation: Client, now: datetime, width: int, scripts: bool
) -> None:
    user = User.objects.create_user("ada@acme.test", PASSWORD, client=organisation)
    send_link(user_id=user.pk, kind=PasswordLink.Kind.RESET, now=now)
    link = re.search(rf"{base_url}\S+", mail.outbox[-1].body)
    assert link
    complaints: list[str] = []
    asked: list[Any] = []
    with chromium() as browser:
        size = {"width": width, "height": 700}
        page = browser.new_context(java_script_enabled=scripts, viewport=size).new_page()
        page.set_default_timeout(LONGEST)
        note_complaints(page, complaints)
        page.on("request", lambda request: asked.append((request.url, request.all_headers())))
        page.goto(link[0])
        expect(page).to_have_title("Set a new password")
        expect(page.get_by_label("Email")).to_have_value("ada@acme.test")
        expect(page.get_by_label("New password")).to_be_focused()
        expect(page.get_by_label("New password")).to_have_accessible_description(
            re.compile("At least 12 characters")
        )
        # By keyboard alone.
        page.keyboard.type("short")
        page.keyboard.press("Tab")
        page.keyboard.type("short")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_be_visible()
        entry = page.get_by_label("New password")
        expect(entry).to_be_focused()
        expect(entry).to_have_attribute("aria-invalid", "true")
        expect(entry).to_have_accessible_description(re.compile("too short"))
        # The style sheet may come after the words.
        page.wait_for_load_state()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # The style sheet was let through by the policy.
        assert page.locator("main").evaluate("it => getComputedStyle(it).maxWidth") == "416px"
        entry.fill(NEW)
        page.get_by_label("Repeat the password").fill(NEW)
        page.get_by_role("button", name="Set password").click()
        expect(page.get_by_role("heading")).to_have_text("Your password is set")
        assert page.url == f"{base_url}/account/password/set"
        page.reload()
        expect(page.get_by_role("heading")).to_have_text("Your password is set")
        page.goto(link[0])
        expect(page.get_by_role("heading")).to_have_text("This link no longer works")
    assert [line for line in complaints if "404" not in line] == []
    assert {url for url, _ in asked if not url.startswith(base_url)} == set()
    assert {headers.get("referer", "") for _, headers in asked} == {""}
    user.refresh_from_db()
    assert user.check_password(NEW)
    with connection.cursor() as cursor:
        # The queue's tables are not Django's, so they are not emptied with the others.
        cursor.execute("TRUNCATE procrastinate_jobs CASCADE")
