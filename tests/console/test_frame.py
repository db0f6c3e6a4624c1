"""The frame of every page of the console: the sidebar, and errors in the same dress."""

import re

import pytest
from django.conf import settings
from django.urls import reverse

from accounts.models import Role, User
from config.console.tables import Chip, Link
from config.console.template_tags import cell, grouped, share, short
from tests.conftest import PASSWORD, Browser
from tests.console.conftest import World

pytestmark = pytest.mark.django_db


def browser_of(*roles: Role) -> Browser:
    operator = User.objects.create_user(f"{'-'.join(roles)}@shell.test", PASSWORD, is_staff=True)
    operator.put_roles(set(roles))
    browser = Browser()
    browser.force_login(operator)
    return browser


def entries(page: str) -> list[str]:
    sidebar = page[page.index('id="menu"') :].partition("</nav>")[0]
    return re.findall(r'<a href="([^"]+)"', sidebar)


@pytest.mark.parametrize("role", Role.values)
def test_the_sidebar_offers_what_a_role_may_open_and_nothing_else(role: Role) -> None:
    browser = browser_of(role)
    offered = entries(browser.get("/admin/").content.decode())
    assert offered[0] == "/admin/"
    assert {browser.get(address).status_code for address in offered} == {200}
    may_see_people = role in {Role.SUPPORT, Role.LICENSING, Role.AUDITOR, Role.OWNER}
    assert (reverse("admin:accounts_user_changelist") in offered) == may_see_people


def test_the_sidebar_says_where_one_is(console: Browser, world: World) -> None:
    people = reverse("admin:accounts_user_changelist")
    row = reverse("admin:accounts_user_change", args=[world.person.pk])
    for address, current in ((people, "page"), (row, "true")):
        page = " ".join(console.get(address).content.decode().split())
        assert f'<a href="{people}" aria-current="{current}">' in page
        assert page.partition("</nav>")[0].count("aria-current") == 1


def test_a_closed_page_says_for_whom_it_is_and_leads_back(operator: User) -> None:
    browser = browser_of(Role.SUPPORT)
    people = f"https://testserver{reverse('admin:accounts_user_changelist')}"
    page = browser.get(reverse("admin:llmproxy_route_changelist"), headers={"Referer": people})
    text = " ".join(page.content.decode().split())
    assert page.status_code == 403
    assert "<h1>Your role (support) cannot open Routes.</h1>" in text
    assert f"Licensing and auditor can open it. Ask an owner: {operator.email}." in text
    assert f'<a href="{people}" class="button primary">Back</a>' in text
    assert Browser.request_id in text
    assert 'id="menu"' in text


def test_a_closed_act_is_named(operator: User, world: World) -> None:
    address = reverse("admin:accounts_user_erase", args=[world.person.pk])
    text = browser_of(Role.SUPPORT).get(address).content.decode()
    assert "Your role (support) cannot use “Erase” of People." in text
    assert "Only owners can use it." in text


def test_a_closed_page_lists_all_roles_that_may_open_it(operator: User) -> None:
    page = browser_of(Role.RELEASE).get(reverse("admin:accounts_user_changelist"))
    text = " ".join(page.content.decode().split())
    assert "Support, licensing and auditor can open it." in text


def test_an_error_leads_nowhere_else(console: Browser) -> None:
    elsewhere = {"Referer": "https://elsewhere.test/admin/"}
    assert "elsewhere" not in console.get("/admin/nothing/", headers=elsewhere).content.decode()


def test_a_stranger_sees_an_error_on_a_card_without_scripts(stranger: Browser) -> None:
    guarded = Browser(enforce_csrf_checks=True)
    own = {"Origin": settings.BASE_URL}
    answer = guarded.post("/admin/login/", {"username": "a"}, headers=own)
    text = answer.content.decode()
    assert answer.status_code == 403
    assert "This form has expired." in text
    assert "script-src" not in answer["Content-Security-Policy"]
    assert "<script" not in text
    assert 'id="menu"' not in text


# bugsink/bugsink#1, netbox-community/netbox#112, djdembeck/bragibooks#81
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "null"},
        {"Origin": "https://elsewhere.test"},
        {"Origin": "http://shell.test:5555"},
        {"Referer": "https://elsewhere.test/admin/"},
        {"Referer": "not an address"},
        {},
    ],
)
def test_a_form_of_another_address_says_where_to_open_it(headers: dict[str, str]) -> None:
    guarded = Browser(enforce_csrf_checks=True)
    guarded.get("/admin/login/", secure=True)
    answer = guarded.post("/admin/login/", {"username": "a"}, headers=headers, secure=True)
    text = answer.content.decode()
    assert answer.status_code == 403
    assert "This form came from another address, or did not say which." in text
    assert f"Open it at {settings.BASE_URL}" in text
    assert "elsewhere" not in text
    assert "expired" not in text


def test_a_form_without_its_cookie_says_that_browsers_may_keep_none() -> None:
    guarded = Browser(enforce_csrf_checks=True)
    own = {"Origin": settings.BASE_URL}
    text = guarded.post("/admin/login/", {"username": "a"}, headers=own).content.decode()
    assert "This form has expired." in text
    assert "cookies" in text
    guarded.get("/admin/login/")
    text = guarded.post("/admin/login/", {"username": "a"}, headers=own).content.decode()
    assert "This form has expired." in text
    assert "cookies" not in text


@pytest.mark.parametrize(
    ("used", "cap", "shown", "shape"),
    [(0, 0, "100 %", "octagon"), (79, 100, "79 %", ""), (80, 100, "80 %", "triangle"), (142, 50, "284 %", "octagon")],
)  # fmt: skip
def test_a_share_is_never_cut_and_has_a_shape(used: int, cap: int, shown: str, shape: str) -> None:
    html = str(share(used, cap))
    assert shown in html
    assert re.findall(r"icon-(\w+)", html) == ([shape] if shape else [])


@pytest.mark.parametrize(
    ("number", "shown"),
    [(9_999, "9,999"), (12_345, "12 k"), (862_600_000, "862.6 M"), (3_030_000_000, "3.03 B")],
)
def test_a_large_number_is_short(number: int, shown: str) -> None:
    assert short(number) == shown


def test_a_cell_is_escaped_and_links_only_where_it_leads_somewhere() -> None:
    assert str(cell(Link("<a>", "/x/"))) == '<a href="/x/">&lt;a&gt;</a>'
    assert str(cell(Link("a", ""))) == "a"
    assert (
        str(cell([Chip("well", "On"), 12_000]))
        == f'<span class="chip chip-well">On</span> {grouped(12_000)}'
    )
    assert str(cell(0)) == "0"
