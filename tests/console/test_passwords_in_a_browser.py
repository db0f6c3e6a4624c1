"""A one-time password from the operator's desk to the person's page, in Chromium."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.urls import reverse
from playwright.sync_api import Page, expect

from accounts.models import Client, User
from tests.browsers import LONGEST, chromium
from tests.conftest import PASSWORD
from tests.console.test_in_a_browser import desk

pytestmark = [pytest.mark.wire, pytest.mark.django_db(transaction=True)]
NEW = "another good horse battery"
# The ratio of WCAG 2, of every text and field on a page to what is behind it.
CONTRASTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = colour => {
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const probe = document.body.appendChild(document.createElement('div'));
  probe.style.setProperty('background-color', 'Canvas');
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const [, , , alpha] = rgb2(getComputedStyle(at).backgroundColor);
      if (alpha > 0) return rgb(getComputedStyle(at).backgroundColor);
    }
    return rgb(getComputedStyle(probe).backgroundColor);
  };
  const rgb2 = text => {
    const parts = text.match(/[\\d.]+/g).map(Number);
    return parts.length === 3 ? [...parts, 1] : parts;
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => v / 255).map(
      v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const found = [...document.querySelectorAll('h1, p, label, input, button, .errorlist li')].map(element => {
    const [a, b] = [light(rgb(getComputedStyle(element).color)), light(behind(element))];
    return [element.outerHTML.slice(0, 60), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
  });
  probe.remove();
  return found;
}"""


@pytest.fixture
def base_url(settings: Any, request: pytest.FixtureRequest) -> str:
    """A server over plain http, which is told so before it starts."""
    settings.SECURE_SSL_REDIRECT = False
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = False
    settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME = "sessionid", "csrftoken"
    address: str = request.getfixturevalue("live_server").url
    settings.BASE_URL = address
    return address


def test_a_one_time_password_is_told_and_used(
    base_url: str, operator: User, organisation: Client
) -> None:
    user = User.objects.create_user("ada@acme.test", PASSWORD, client=organisation)
    with desk(base_url, operator) as page:
        page.goto(reverse("admin:accounts_user_change", args=[user.pk]))
        page.get_by_text("More", exact=True).click()
        page.get_by_role("link", name="Set one-time password").click()
        page.get_by_label("Reason").fill("Mail is down.")
        page.get_by_role("button", name="Set a one-time password").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(user.email)
        page.wait_for_load_state()
        shown, address = page.locator("dl.shown-once code").all_inner_texts()
        assert re.fullmatch(r"(\w{4}-){5}\w{3}", shown)
        page.get_by_role("link", name="Done").click()
        expect(page.locator("body")).not_to_contain_text(shown)
    with _person() as page:
        _choose(page, address, user.email, shown)
    user.refresh_from_db()
    assert user.check_password(NEW)
    with connection.cursor() as cursor:
        # The queue's tables are not Django's, so they are not emptied with the others.
        cursor.execute("TRUNCATE procrastinate_jobs CASCADE")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_on_the_page_can_be_read(base_url: str, scheme: str) -> None:
    with _person(color_scheme=scheme) as page:
        page.goto(f"{base_url}/account/password")
        page.get_by_role("button", name="Set password").click()
        expect(page.get_by_role("alert")).to_be_visible()
        found = page.evaluate(CONTRASTS)
        assert len(found) > 10
        assert [each for each in found if each[1] < 4.5] == []


@contextmanager
def _person(**how: Any) -> Iterator[Page]:
    """A browser of somebody's own, on a small screen."""
    with chromium() as browser:
        page = browser.new_context(viewport={"width": 320, "height": 700}, **how).new_page()
        page.set_default_timeout(LONGEST)
        yield page


def _choose(page: Page, address: str, email: str, one_time: str) -> None:
    page.goto(address)
    expect(page).to_have_title("Choose a password")
    expect(page.get_by_label("Email")).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # By keyboard alone, and without looking closely.
    for text in (email, one_time.lower().replace("-", " "), "short", "short"):
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    entry = page.get_by_label("New password")
    expect(entry).to_be_focused()
    expect(entry).to_have_accessible_description(re.compile("too short"))
    expect(page.get_by_label("One-time password")).to_have_value(one_time.lower().replace("-", " "))
    entry.fill(NEW)
    page.get_by_label("Repeat the password").fill(NEW)
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_role("heading")).to_have_text("Your password is set")
