"""Every link of the console leads to a page that whoever sees it may open: all of them are followed as every role."""

import re
from collections import Counter, deque
from datetime import datetime
from html import unescape
from urllib.parse import urljoin, urlsplit

import pytest
from django.urls import resolve, reverse
from pytest_django.fixtures import Settings

from accounts.audit import Actor
from accounts.models import Role
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_every_act import arranged
from tests.console.test_roles import operator_with

pytestmark = pytest.mark.django_db
# Addresses of one route with the same names in their queries; the others of a list are alike.
OF_A_KIND = 3
# They give a file, or end the session.
NOT_FOLLOWED = re.compile(r"/export|/statement|/logout/")
LINKS = re.compile(r'<(?:a|form)[^>]*?\s(?:href|action)="([^"]*)"')
SHORT = {Role.RELEASE.value}


def kind_of(address: str) -> tuple[str, ...]:
    parts = urlsplit(address)
    names = sorted(re.findall(r"([^&=]+)=", parts.query))
    return (resolve(parts.path).view_name, *names)


@pytest.mark.parametrize(
    "role",
    [pytest.param(each, marks=() if each in SHORT else pytest.mark.full) for each in Role.values],
)
def test_every_link_opens_for_the_role_that_sees_it(
    role: str, world: World, by: Actor, now: datetime, settings: Settings
) -> None:
    settings.CDN_PURGE = "purge"
    arranged(world, by, now)
    browser = Browser()
    browser.force_login(operator_with(role))
    words = ("acme", "notes", "stable", "small", str(world.person.pk)[:8])
    to_do = deque([(reverse("admin:index"), "")])
    to_do.extend((f"{reverse('admin:search')}?q={word}", "") for word in words)
    seen, kinds, closed = {address for address, _ in to_do}, Counter[tuple[str, ...]](), []
    while to_do:
        address, found_on = to_do.popleft()
        answer = browser.get(address)
        if answer.status_code == 302:
            text, targets = "", [answer["Location"]]
        else:
            text = answer.content.decode() if answer["Content-Type"].startswith("text/html") else ""
            targets = [unescape(each) for each in LINKS.findall(text)]
        if answer.status_code not in {200, 302} or "/admin/login/" in answer.headers.get(
            "Location", ""
        ):
            closed.append(f"{role}: {address} ({answer.status_code}), linked on {found_on}")
        for target in targets:
            there = urljoin(address, target.partition("#")[0])
            if not there.startswith("/admin/") or NOT_FOLLOWED.search(there) or there in seen:
                continue
            kinds[kind_of(there)] += 1
            if kinds[kind_of(there)] <= OF_A_KIND:
                seen.add(there)
                to_do.append((there, address))
    assert closed == [], "\n".join(closed)
    assert len(kinds) > 20
