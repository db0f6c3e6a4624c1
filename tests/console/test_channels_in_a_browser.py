"""A channel in Chromium: an operator sees a purge that fails, rolls back, halts, and is told why."""

from datetime import datetime
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from accounts.models import User
from releases.models import Publication, Purge, ShellChannel
from tests.browsers import take_act
from tests.console.test_in_a_browser import base_url, desk
from tests.releases import conftest as releasing
from tests.releases.conftest import Pipeline

__all__ = ["base_url"]

pytestmark = [pytest.mark.wire, pytest.mark.django_db(transaction=True)]

cdn, pipeline = releasing.cdn, releasing.pipeline
PAGE = reverse("admin:releases_shellchannel_change", args=["stable"])


@pytest.fixture
def published(pipeline: Pipeline, settings: Any, now: datetime) -> Pipeline:
    """Two releases, of which the CDN does not know the second."""
    for version in ("1.0.0", "2.0.0"):
        pipeline.publish(pipeline.release(version))
    settings.CDN_PURGE = "purge"
    Purge.objects.create(
        channel_id="stable",
        publication=Publication.objects.of("stable")[0],
        asked_at=now,
        due_at=now,
        tried_at=now,
        attempts=3,
        failure="answered_403",
    )
    return pipeline


def test_an_operator_steers_a_channel(base_url: str, operator: User, published: Pipeline) -> None:
    with desk(base_url, operator) as page:
        page.goto(PAGE)
        wrong = page.locator(".message.error")
        expect(wrong).to_contain_text("could not be notified (answered_403)")

        page.get_by_role("link", name="Explain what a shell gets").click()
        page.get_by_role("combobox", name="System").select_option("darwin")
        page.get_by_label("Version it has").fill("1.0.0")
        page.get_by_role("button", name="Explain").click()
        expect(page.get_by_role("heading", name="It gets version 2.0.0")).to_be_visible()
        page.locator(".crumbs a").last.click()

        page.get_by_text("More", exact=True).click()
        page.get_by_role("link", name="Roll back").click()
        expect(page.locator(".timeline")).to_contain_text("Shells that have a newer version keep")
        page.get_by_label("Reason").fill("It crashes at start.")
        page.get_by_role("button", name="Roll back to 1.0.0").click()
        expect(page.locator(".messagelist")).to_contain_text("offers 1.0.0 again")

        take_act(page, "Halt")
        expect(page.locator(".timeline")).to_contain_text("stay on their version")
        page.get_by_label("Reason").fill("Until we know more.")
        page.get_by_role("button", name="Halt").click()
        expect(page.locator("h1")).to_contain_text("Halted")
        page.goto(reverse("admin:releases_shellrelease_changelist"))
        page.get_by_role("link", name="2.0.0").first.click()
    assert ShellChannel.objects.get().halted_at is not None
    assert Publication.objects.of("stable")[0].release.version == "1.0.0"


def test_an_operator_raises_a_share_and_takes_it_back(
    base_url: str, operator: User, published: Pipeline
) -> None:
    published.publish(published.release("3.0.0"), share=5)
    with desk(base_url, operator) as page:
        page.goto(PAGE)
        expect(page.locator("h1")).to_contain_text("Rolling out to 5 %")
        page.get_by_role("link", name="Raise share").click()
        page.get_by_label("Percent of the shells").fill("40")
        page.get_by_label("Reason").fill("Nobody complains.")
        page.get_by_role("button", name="Raise share").click()
        expect(page.locator(".messagelist")).to_contain_text("offers 3.0.0 to 40 % of the shells")
        page.get_by_text("More", exact=True).click()
        page.get_by_role("link", name="End rollout…").click()
        page.get_by_label("Reason").fill("It crashes.")
        page.get_by_role("button", name="End the rollout").click()
        expect(page.locator(".messagelist")).to_contain_text("offers 2.0.0 to all shells")
        expect(page.locator("h1")).to_contain_text("Offered")


@pytest.mark.parametrize("width", [360, 1280])
def test_its_pages_fit_the_screen(
    base_url: str, operator: User, published: Pipeline, width: int
) -> None:
    published.publish(published.release("3.0.0"), share=5)
    release = Publication.objects.of("stable")[0].release
    pages = [
        PAGE,
        reverse("admin:releases_shellchannel_explain", args=["stable"]) + "?os=darwin",
        reverse("admin:releases_shellchannel_roll_back", args=["stable"]),
        reverse("admin:releases_shellchannel_raise_share", args=["stable"]),
        reverse("admin:releases_shellchannel_halt", args=["stable"]),
        reverse("admin:releases_shellrelease_change", args=[release.pk]),
    ]
    with desk(base_url, operator, viewport={"width": width, "height": 800}) as page:
        for address in pages:
            page.goto(address)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
