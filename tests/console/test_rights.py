"""Views of an operator with few rights: each page shows the blocks whose rows they may see."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import pytest
from django.contrib import admin
from django.urls import resolve, reverse

from accounts.audit import Actor
from accounts.models import Role, User
from config.composition.roles import rights_of
from config.platform.attention import kinds
from releases.models import AppPin, MicroApp
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_every_act import arranged
from tests.console.test_pages import every_page
from tests.console.test_roles import operator_with
from usage.models import UsageRecord

pytestmark = pytest.mark.django_db

Address = Callable[[World], str]
OperatorOf = Callable[[Iterable[str]], User]
BLOCKS = {
    "front": {
        "Licences by state": "licensing.view_licence",
        "is in its grace period</b> until": "licensing.view_licence",
        "Running calls": "usage.view_runningcall",
        "failed permanently": "procrastinate.view_procrastinatejob",
        "Nightly jobs": "accounts.view_auditevent",
        "an override": "accounts.view_auditevent",
    },
    "person": {
        "450,000": "usage.view_monthlyusage",
        "Running calls": "usage.view_runningcall",
        "Ended sessions": "accounts.view_session",
        "an override": "accounts.view_auditevent",
    },
    "client": {
        "The invoice is late.": "licensing.view_licence",
        "person-0@acme.test": "accounts.view_user",
        'id="calls"': "usage.view_runningcall",
        'id="sessions"': "accounts.view_session",
        'id="happened"': "accounts.view_auditevent",
    },
}
ADDRESSES: dict[str, Address] = {
    "front": lambda world: reverse("admin:index"),
    "person": lambda world: reverse("admin:accounts_user_change", args=[world.person.pk]),
    "client": lambda world: reverse("admin:accounts_client_change", args=[world.client.pk]),
}
# To see the page at all.
OWN = {"front": (), "person": ("accounts.view_user",), "client": ("accounts.view_client",)}


@pytest.mark.parametrize("page", BLOCKS)
def test_a_block_is_shown_to_who_may_view_its_rows(
    stranger: Browser, world: World, page: str, operator_of: OperatorOf
) -> None:
    def shown(*rights: str) -> set[str]:
        stranger.force_login(operator_of((*OWN[page], *rights)))
        answer = stranger.get(ADDRESSES[page](world))
        assert answer.status_code == 200
        return {block for block in BLOCKS[page] if block in answer.content.decode()}

    assert shown() == set()
    for right in set(BLOCKS[page].values()):
        assert {block for block, its in BLOCKS[page].items() if its == right} <= shown(right)
    assert shown(*BLOCKS[page].values()) == set(BLOCKS[page])


def acts_linked(browser: Browser) -> set[str]:
    """The addresses of acts on rows in all links of all pages."""
    routes = {
        f"{model._meta.app_label}_{model._meta.model_name}_{act.name}"
        for model, console in admin.site._registry.items()
        for act in console.row_actions  # type: ignore[attr-defined]
    }
    found = set()
    for page in every_page():
        hrefs = re.findall(r'href="(/admin/[^"?]+/)"', browser.get(page).content.decode())
        found |= {each for each in hrefs if resolve(each).url_name in routes}
    return found


def named(addresses: Iterable[str]) -> set[str | None]:
    return {resolve(each).url_name for each in addresses}


ON_A_PERSON = {
    "accounts_user_stop_calls", "accounts_user_restart_calls", "accounts_session_end",
    "usage_runningcall_end", "usage_override_end",
}  # fmt: skip


# Each walks all pages; the others are `make test-full`'s.
LONG = [
    pytest.param(hows, marks=pytest.mark.full)
    for hows in (*sorted({*Role.values} - {Role.SUPPORT}), "operator")
]


@pytest.mark.parametrize("hows", [Role.SUPPORT, *LONG])
def test_a_link_to_an_act_is_shown_to_whoever_may_follow_it(
    stranger: Browser, console: Browser, world: World, by: Actor, now: datetime, hows: str
) -> None:
    arranged(world, by, now)
    died = now - timedelta(seconds=1)
    UsageRecord.objects.filter(user=world.people[1]).update(expires_at=died)
    browser = console
    if hows in Role.values:
        browser = stranger
        browser.force_login(operator_with(hows))
    found = acts_linked(browser)
    for address in sorted(found):
        assert browser.get(address).status_code == 200, address
    if hows == Role.AUDITOR:
        assert not found
    if hows in {"operator", Role.OWNER, Role.SUPPORT}:
        assert named(found) >= ON_A_PERSON


@pytest.mark.full
def test_no_link_leads_to_an_act_on_an_operator_for_who_may_make_none(
    stranger: Browser,
    console: Browser,
    world: World,
    by: Actor,
    now: datetime,
    operator_of: OperatorOf,
) -> None:
    arranged(world, by, now)
    User.objects.filter(client__isnull=False).update(is_superuser=True)
    browser = stranger
    browser.force_login(operator_of(rights_of(Role.OWNER)))
    assert named(acts_linked(console)) >= ON_A_PERSON
    assert not named(acts_linked(browser)) & ON_A_PERSON
    granting = f"{reverse('admin:usage_override_add')}?user="
    shown = [each.get(ADDRESSES["person"](world)).content.decode() for each in (console, browser)]
    assert [granting in each for each in shown] == [True, False]


def test_an_operator_who_sees_no_troubles_is_not_told_that_there_are_none(
    stranger: Browser, world: World, operator_of: OperatorOf
) -> None:
    stranger.force_login(operator_of(()))
    text = stranger.get("/admin/").content.decode()
    assert "Nothing needs attention in your areas." in text
    assert "Nightly jobs" not in text


def test_every_right_that_a_trouble_asks_for_is_one_that_can_be_given() -> None:
    assert {kind.right for kind in kinds} <= rights_of(Role.OWNER)


def test_the_history_of_a_row_is_for_operators_who_may_view_it(
    stranger: Browser, world: World, operator_of: OperatorOf
) -> None:
    history = reverse("admin:accounts_user_history", args=[world.person.pk])
    stranger.force_login(operator_of(()))
    assert stranger.get(history).status_code == 403
    operator_of(("accounts.view_user",))
    assert stranger.get(history).status_code == 302


def test_a_budget_is_set_by_those_alone_who_may_change_budgets(
    stranger: Browser, world: World, operator_of: OperatorOf
) -> None:
    def offered(*rights: str) -> bool:
        stranger.force_login(operator_of(("accounts.view_client", "accounts.client_name", *rights)))
        return "Set budget" in stranger.get(ADDRESSES["client"](world)).content.decode()

    assert not offered()
    assert offered("accounts.client_budget")


@pytest.mark.parametrize(
    ("role", "listed"),
    [(Role.RELEASE, False), (Role.RELEASE, True), (Role.LICENSING, True), (Role.OWNER, True)],
)
def test_clients_are_suggested_to_operators_who_may_list_them(
    world: World,
    by: Actor,
    now: datetime,
    role: Role,
    listed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not listed:
        without = rights_of(role) - {"accounts.view_client"}
        monkeypatch.setattr("config.composition.roles.rights_of", lambda each: without)
    arranged(world, by, now)
    browser = Browser()
    browser.force_login(operator_with(role))
    shown = browser.get(reverse("admin:accounts_client_changelist")).status_code
    assert (shown == 200) == listed
    app = MicroApp.objects.get(slug="notes")
    pin = reverse("admin:releases_microapp_pin_client", args=[app.pk])
    address = reverse("admin:accounts_user_add") if role == Role.LICENSING else pin
    page = browser.get(address)
    assert (b"Borealis" in page.content) == listed
    assert (b"<datalist" in page.content) == listed


def test_a_client_is_pinned_by_its_name_without_suggestions(
    world: World, by: Actor, now: datetime
) -> None:
    arranged(world, by, now)
    browser = Browser()
    browser.force_login(operator_with(Role.RELEASE))
    app = MicroApp.objects.get(slug="notes")
    pin = reverse("admin:releases_microapp_pin_client", args=[app.pk])
    version = app.versions.get(version="1.0.0").pk
    given = {"client": "acme", "version": version, "reason": "They asked."}
    assert browser.post(pin, given).status_code == 302
    assert AppPin.objects.filter(client=world.client, version=version).exists()
