"""Micro apps as operators see them: whom a channel reaches, what a move would do, and who is pinned."""

from datetime import datetime
from typing import Any

import pytest
from django.urls import reverse

from accounts.models import Client, Role, User
from licensing.models import Licence, Plan
from releases.models import AppChannel, AppPin, AppVersion, MicroApp
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_every_act import app_versions

pytestmark = pytest.mark.django_db


@pytest.fixture
def notes(world: World, now: datetime) -> MicroApp:
    app_versions(now)
    Licence.objects.update(entitlements=["notes"])
    AppPin.objects.all().delete()
    return MicroApp.objects.get()


def act(name: str) -> str:
    return reverse(f"admin:releases_microapp_{name}", args=["notes"])


def text(answer: Any) -> str:
    return " ".join(answer.content.decode().split())


def test_a_moved_channel_preselects_nothing_and_shows_its_effects_first(
    console: Browser, notes: MicroApp
) -> None:
    page = console.get(act("move"))
    form = page.context["form"]
    assert {form[each].value() for each in ("channel", "version", "seen")} == {None}
    assert "Show the effects" in text(page)
    older = AppVersion.objects.get(version="1.0.0")
    entered = {"channel": "beta", "version": older.pk, "reason": "It crashes."}
    preview = console.post(act("move"), entered)
    clients, people = Client.objects.count(), User.objects.filter(client__isnull=False).count()
    assert "<b>1.2.0</b>, since" in text(preview)
    assert "<b>1.0.0</b>, published" in text(preview)
    assert f"of at most {clients} clients with {people} people" in text(preview)
    assert "Move beta to 1.0.0</button>" in text(preview)
    assert AppChannel.objects.get(name="beta").version.version == "1.2.0"
    shown = preview.context["form"].initial
    # Another choice is shown first too.
    other = {**entered, "channel": "stable", "seen": shown["seen"]}
    assert "Move stable to 1.0.0" in text(console.post(act("move"), other))
    assert not AppChannel.objects.filter(name="stable").exists()
    done = console.post(act("move"), {**entered, "seen": shown["seen"]}, follow=True)
    assert "notes beta offers 1.0.0." in text(done)


@pytest.mark.parametrize("seen", ["beta", "beta x", "beta 99999999999999999999", "\u0663", "9"])
def test_a_made_up_preview_moves_nothing(console: Browser, notes: MicroApp, seen: str) -> None:
    older = AppVersion.objects.get(version="1.0.0")
    entered = {"channel": "beta", "version": older.pk, "reason": "", "seen": seen}
    assert console.post(act("move"), entered).status_code == 200
    assert AppChannel.objects.get(name="beta").version.version == "1.2.0"


def test_pinned_clients_and_those_on_a_pinned_plan_are_not_reached(
    console: Browser, notes: MicroApp, now: datetime
) -> None:
    def reached() -> Any:
        return console.get(act("promote")).context["preview"].shown["reach"]

    everybody = reached()
    assert everybody.pinned == 0
    assert everybody.clients == Client.objects.count()
    client, version = Client.objects.order_by("name")[0], AppVersion.objects.get(version="1.1.0")
    pinned = console.post(
        act("pin_client"),
        {"client": client.pk, "version": version.pk, "reason": "They asked."},
        follow=True,
    )
    assert "is pinned to notes 1.1.0." in text(pinned)
    assert (reached().clients, reached().pinned) == (everybody.clients - 1, 1)
    assert everybody.people - reached().people == client.users.filter(is_active=True).count()
    for plan in Plan.objects.all():
        console.post(act("pin_plan"), {"plan": plan.pk, "version": version.pk, "reason": "x"})
    assert (reached().clients, reached().people) == (0, 0)
    Licence.objects.update(entitlements=[])
    Plan.objects.update(entitlements=[])
    assert reached().pinned == 0


def test_the_page_of_a_pin_links_only_what_its_reader_may_open(
    notes: MicroApp, now: datetime
) -> None:
    client = Client.objects.order_by("name")[0]
    version = AppVersion.objects.get(version="1.1.0")
    pin = AppPin.objects.create(
        app=notes, client=client, version=version, reason="x", pinned_at=now, pinned_by="x"
    )
    address = reverse("admin:releases_apppin_change", args=[pin.pk])
    links = [
        reverse("admin:releases_appversion_change", args=[version.pk]),
        reverse("admin:accounts_client_change", args=[client.pk]),
    ]
    for role, opened in {Role.RELEASE: links, Role.SUPPORT: links[1:]}.items():
        reader = User.objects.create_user(f"{role}@ops.test", is_staff=True)
        reader.put_roles({role})
        browser = Browser()
        browser.force_login(reader)
        page = browser.get(address)
        assert "is pinned to notes 1.1.0" in text(page)
        assert [each for each in links if f'href="{each}"' in text(page)] == opened
