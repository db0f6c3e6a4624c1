"""What an operator sees who has only some rights: of each page the blocks whose rows they may look at."""

from collections.abc import Callable, Iterable
from datetime import datetime

import pytest
from django.contrib.auth.models import Permission
from django.urls import reverse

from accounts.models import User
from config.console.troubles import LOOKS
from tests.conftest import Browser
from tests.console.conftest import World

pytestmark = pytest.mark.django_db

Address = Callable[[World], str]
BLOCKS = {
    "front": {
        "Licences active": "view_licence",
        "Grace that ends soon": "view_licence",
        "Calls in flight": "view_runningcall",
        "Jobs that failed for good": "view_procrastinatejob",
        "Every night": "view_auditevent",
        "override:granted": "view_auditevent",
    },
    "person": {
        "450,000": "view_monthlyusage",
        "Calls in flight": "view_runningcall",
        "Live sessions": "view_session",
        "override:granted": "view_auditevent",
    },
    "client": {
        "The invoice is late.": "view_licence",
        "person-0@acme.test": "view_user",
        "Calls in flight": "view_runningcall",
        "Live sessions": "view_session",
        "What happened": "view_auditevent",
    },
}
ADDRESSES: dict[str, Address] = {
    "front": lambda world: reverse("admin:index"),
    "person": lambda world: reverse("admin:accounts_user_change", args=[world.person.pk]),
    "client": lambda world: reverse("admin:accounts_client_change", args=[world.client.pk]),
}
# To see the page at all.
OWN = {"front": (), "person": ("view_user",), "client": ("view_client",)}


def helper(browser: Browser, rights: Iterable[str]) -> Browser:
    """A browser in which somebody with these rights is signed in."""
    user, _ = User.objects.get_or_create(email="helper@shell.test", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    browser.force_login(user)
    return browser


@pytest.mark.parametrize("page", BLOCKS)
def test_a_block_is_shown_to_who_may_view_its_rows(
    stranger: Browser, world: World, page: str
) -> None:
    def shown(*rights: str) -> set[str]:
        answer = helper(stranger, (*OWN[page], *rights)).get(ADDRESSES[page](world))
        assert answer.status_code == 200
        return {block for block in BLOCKS[page] if block in answer.content.decode()}

    assert shown() == set()
    for right in set(BLOCKS[page].values()):
        assert {block for block, its in BLOCKS[page].items() if its == right} <= shown(right)
    assert shown(*BLOCKS[page].values()) == set(BLOCKS[page])


def test_who_sees_no_troubles_is_not_told_that_there_are_none(
    stranger: Browser, world: World
) -> None:
    text = helper(stranger, ()).get("/admin/").content.decode()
    assert "Nothing that you may look at." in text
    assert "no night was missed" not in text


def test_every_right_that_a_trouble_asks_for_is_one_that_can_be_given(db: None) -> None:
    there = {
        f"{label}.{codename}"
        for label, codename in Permission.objects.values_list("content_type__app_label", "codename")
    }
    assert {permission for permission, _ in LOOKS} <= there


def test_what_happened_to_a_row_is_for_who_may_view_it(
    stranger: Browser, world: World, now: datetime
) -> None:
    history = reverse("admin:accounts_user_history", args=[world.person.pk])
    assert helper(stranger, ()).get(history).status_code == 403
    assert helper(stranger, ("view_user",)).get(history).status_code == 302
