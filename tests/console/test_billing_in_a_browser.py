"""Held suspensions as an operator meets them: on the front page, in Chromium."""

from datetime import datetime

import pytest
from playwright.sync_api import expect

from accounts.audit import Actor
from accounts.models import User
from licensing.models import HeldSuspension, Plan
from tests.console.test_billing import held
from tests.console.test_in_a_browser import base_url, desk

__all__ = ["base_url"]
pytestmark = [pytest.mark.wire, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("width", [360, 1280])
def test_held_suspensions_are_found_looked_at_and_confirmed(
    base_url: str, operator: User, plan: Plan, by: Actor, now: datetime, width: int
) -> None:
    row = held(plan, by=by, now=now)
    with desk(base_url, operator, viewport={"width": width, "height": 900}) as browser:
        waiting = browser.locator("ul.attention li", has_text="for you")
        waiting.get_by_role("link", name="12 suspensions").click()
        expect(browser.get_by_text("Debtor 00, Debtor 01")).to_be_visible()
        expect(browser.locator("#zone")).to_contain_text("Asia/Calcutta")
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        browser.get_by_role("link", name="Confirm suspensions").click()
        expect(browser.locator(".effects")).to_contain_text("suspends 12 of 12 clients")
        # Its style may come after its words.
        browser.wait_for_load_state()
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        browser.get_by_label("Reason").fill("They have all left.")
        browser.get_by_role("button", name="Let sync_subscriptions suspend").click()
        expect(browser.locator(".messagelist")).to_contain_text("The next run suspends them")
        expect(browser.get_by_role("link", name="Confirm suspensions")).to_have_count(0)
    assert not HeldSuspension.objects.get(pk=row.pk).is_held
