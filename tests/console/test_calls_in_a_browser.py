"""Stopping, restarting, ending a call and allowing more, as an operator does it in Chromium."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from accounts.models import User
from tests.console.conftest import World
from tests.console.test_in_a_browser import base_url, desk
from usage.models import Override, Stop, UsageRecord

__all__ = ["base_url"]

pytestmark = [pytest.mark.wire, pytest.mark.django_db(transaction=True)]


def test_a_person_is_stopped_and_let_go_on(base_url: str, operator: User, world: World) -> None:
    person = world.person
    with desk(base_url, operator) as page:
        page.goto(reverse("admin:accounts_client_change", args=[world.client.pk]))
        row = page.locator("tr", has_text=person.email)
        row.get_by_label("Actions for").click()
        row.get_by_role("link", name="Stop").click()
        expect(page.locator(".effects")).to_contain_text("running ones end within 15 seconds")
        page.get_by_label("Reason").fill("Runs wild.")
        page.get_by_role("button", name="Stop model calls").click()
        expect(page.locator(".messagelist")).to_contain_text(
            "can no longer call models. 1 call will end within 15 seconds."
        )
        expect(page.get_by_text("Runs wild.").first).to_be_visible()
        page.get_by_role("link", name="Restart").first.click()
        page.get_by_label("Reason").fill("It was a loop in a script, now mended.")
        page.get_by_role("button", name="Restart model calls").click()
        expect(page.locator(".messagelist")).to_contain_text("can call models again")
        expect(page.get_by_role("status")).to_have_count(0)
    assert not Stop.objects.exists()


def test_a_call_in_flight_is_found_from_the_front_page_and_ended(
    base_url: str, operator: User, world: World
) -> None:
    with desk(base_url, operator) as page:
        page.get_by_role("link", name="Calls", exact=True).click()
        page.get_by_role("link", name="Running").first.click()
        expect(page.locator("#result_list tbody tr")).to_have_count(len(world.people))
        page.locator("#searchbar").fill(world.person.email)
        page.get_by_role("button", name="Apply").click()
        expect(page.locator("#result_list tbody tr")).to_have_count(1)
        page.get_by_role("link", name="End the call").click()
        page.get_by_label("Reason").fill("Loops.")
        page.get_by_role("button", name="End this call").click()
        expect(page.locator(".messagelist")).to_contain_text("1 call will end within 15 seconds.")
        expect(page.locator("#result_list")).to_contain_text("Ending")
    told = UsageRecord.objects.get(told_to_end_at__isnull=False)
    assert told.user == world.person


def test_an_extra_allowance_takes_a_number_and_a_reason(
    base_url: str, operator: User, world: World
) -> None:
    person = world.people[5]
    with desk(base_url, operator) as page:
        page.goto(reverse("admin:accounts_user_change", args=[person.pk]))
        page.get_by_role("link", name="Grant an extra allowance").click()
        expect(page.get_by_label("Adds to it")).to_be_checked()
        page.get_by_label("Monthly output tokens").fill("25000")
        page.get_by_label("Reason").fill("A large report.")
        page.get_by_role("button", name="Grant override").click()
        expect(page.locator(".messagelist")).to_contain_text("The extra allowance for")
        page.goto(reverse("admin:accounts_user_change", args=[person.pk]))
        expect(page.locator("section.usage")).to_contain_text("125 k")
        page.get_by_role("link", name="End the extra allowance").click()
        page.get_by_label("Reason").fill("Done.")
        page.get_by_role("button", name="End the extra allowance").click()
        expect(page.locator(".messagelist")).to_contain_text("has ended")
    assert Override.objects.get(user=person).is_extra


@pytest.mark.parametrize("width", [360, 1280])
def test_pages_fit_the_screen(base_url: str, operator: User, world: World, width: int) -> None:
    call = UsageRecord.objects.open().get(user=world.person)
    Stop.objects.create(user=world.people[1], stopped_at=call.opened_at, reason="Runs wild.")
    pages = [
        reverse("admin:usage_runningcall_changelist"),
        reverse("admin:usage_runningcall_change", args=[call.pk]),
        reverse("admin:usage_alert_changelist"),
        reverse("admin:accounts_user_change", args=[world.people[1].pk]),
        reverse("admin:accounts_client_change", args=[world.client.pk]),
        reverse("admin:usage_override_add") + f"?user={world.person.pk}&on_top=yes",
        reverse("admin:accounts_user_stop_calls", args=[world.person.pk]),
    ]
    with desk(base_url, operator, viewport={"width": width, "height": 800}) as page:
        for address in pages:
            page.goto(address)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
