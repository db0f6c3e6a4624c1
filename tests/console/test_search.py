"""One field finds everything that an operator may list, by index, and opens what is named alone."""

from datetime import datetime
from urllib.parse import quote

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor
from accounts.models import Role, Session, User
from config.console.finders import SHOWN, finders
from config.console.navigation import page_of
from llmproxy.models import LanguageModel, PersonalKey
from releases.models import ShellRelease
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_every_act import arranged
from tests.console.test_roles import operator_with
from usage.models import Refusal, UsageRecord

pytestmark = pytest.mark.django_db
SEARCH = reverse("admin:search")
REQUEST = "5f3a2c1e-9d7b-4e0a-8c21-7b6f5d4e3c2b"


@pytest.fixture
def all_of_it(world: World, by: Actor, now: datetime) -> World:
    arranged(world, by, now)
    call = UsageRecord.objects.filter(state="settled").order_by("pk").first()
    assert call is not None
    UsageRecord.objects.filter(pk=call.pk).update(request_id=REQUEST)
    Refusal.objects.create(
        minute=now, last_at=now, user=world.person, code="budget_exceeded", status=429,
        request_ids=["of-a-caller", REQUEST[:-1] + "0"],
    )  # fmt: skip
    return world


def found(browser: Browser, text: str) -> dict[str, int]:
    """The kinds with the number of rows that are shown."""
    answer = browser.get(SEARCH, {"q": text})
    assert answer.status_code == 200, answer["Location"]
    return {title: len(table.rows) for title, table in answer.context["tables"]}


def opened(browser: Browser, text: str) -> str:
    """The page to which a text leads at once."""
    answer = browser.get(SEARCH, {"q": text})
    assert answer.status_code == 302, found(browser, text)
    assert browser.get(answer["Location"]).status_code == 200
    return str(answer["Location"])


@pytest.mark.parametrize(
    "title",
    [
        "Clients", "People", "Calls", "Refusals", "Sessions", "Personal keys", "Models",
        "Providers", "Channels", "Releases", "Apps", "App versions", "Jobs", "Audit",
    ],
)  # fmt: skip
def test_an_app_declares_the_finder_of(title: str) -> None:
    assert finders[title].title == title


def test_finders_have_places_of_their_own() -> None:
    assert len({finder.place for finder in finders}) == len(list(finders))


def test_a_whole_id_opens_its_row(console: Browser, all_of_it: World) -> None:
    for model in (Session, PersonalKey, UsageRecord):
        row = model._default_manager.first()
        assert row is not None
        assert opened(console, f" {row.pk} ") == page_of(row)
        assert opened(console, row.pk.hex.upper()) == page_of(row)
    # Its audit events are its own, and open nothing.
    assert opened(console, str(all_of_it.client.pk)) == page_of(all_of_it.client)
    assert opened(console, str(all_of_it.person.pk)) == page_of(all_of_it.person)


def test_the_beginning_of_an_id_finds_its_row_as_pages_show_it(
    console: Browser, all_of_it: World
) -> None:
    rows = (
        all_of_it.client,
        all_of_it.person,
        Session.objects.first(),
        UsageRecord.objects.first(),
    )
    kinds = ("Clients", "People", "Sessions", "Calls")
    for kind, row in zip(kinds, rows, strict=True):
        assert row is not None
        for text in (str(row.pk)[:8], f"{str(row.pk)[:8]}…", str(row.pk)[:13]):
            assert kind in found(console, text), (kind, text)


def test_a_request_id_opens_its_call_or_its_refusal(console: Browser, all_of_it: World) -> None:
    call = UsageRecord.objects.get(request_id=REQUEST)
    assert opened(console, REQUEST) == page_of(call)
    refusal = page_of(Refusal.objects.get())
    assert opened(console, "of-a-caller") == refusal
    assert opened(console, REQUEST[:-1] + "0") == refusal


def test_an_email_opens_its_person_and_a_part_of_it_lists_people(
    console: Browser, all_of_it: World
) -> None:
    assert opened(console, "Person-3@acme.test") == page_of(all_of_it.people[3])
    kinds = found(console, "ACME")
    assert kinds["Clients"] == 1
    assert kinds["People"] >= len(all_of_it.people)


def test_names_slugs_and_versions_find_theirs(console: Browser, all_of_it: World) -> None:
    assert found(console, "acm")["Clients"] == 1
    assert opened(console, "small") == page_of(LanguageModel.objects.get(name="small"))
    assert found(console, "stabl")["Channels"] == 1
    assert found(console, "defaul")["Providers"] == 1
    assert "Apps" in found(console, "note")
    assert "App versions" in found(console, "notes")
    release = ShellRelease.objects.get(version="1.2.3")
    assert "Releases" in found(console, "1.2") or opened(console, "1.2.3") == page_of(release)
    assert found(console, "override:") == {}
    assert found(console, all_of_it.client.name[:3])["Audit"] > 0


def test_a_number_finds_its_job(console: Browser, all_of_it: World) -> None:
    job = ProcrastinateJob.objects.get(pk=all_of_it.job_id)
    assert opened(console, str(job.pk)) == page_of(job)


def test_many_are_ten_with_a_link_to_the_list(console: Browser, all_of_it: World) -> None:
    for number in range(SHOWN):
        User.objects.create(email=f"more-{number}@acme.test", client=all_of_it.client)
    answer = console.get(SEARCH, {"q": "@acme.test"})
    table = dict(answer.context["tables"])["People"]
    assert len(table.rows) == SHOWN
    assert (
        table.more.href
        == f"{reverse('admin:accounts_user_changelist')}?q={quote('@acme.test', safe='')}"
    )
    assert console.get(table.more.href).status_code == 200


@pytest.mark.parametrize("text", ["", " ", "%_'\"\\", "1" * 400, "f" * 32, "-" * 36, "f" * 40])
def test_any_text_is_answered(console: Browser, all_of_it: World, text: str) -> None:
    assert console.get(SEARCH, {"q": text}).status_code == 200


def test_nothing_shown_is_a_secret_or_markup(console: Browser, all_of_it: World) -> None:
    text = console.get(SEARCH, {"q": "<script>"}).content.decode()
    assert "Borealis" in text
    assert "<script>" not in text
    for beginning in (str(all_of_it.person.pk)[:8], "acme", REQUEST[:8]):
        shown = console.get(SEARCH, {"q": beginning}, follow=True).content.decode()
        assert not [secret for secret in all_of_it.secrets if secret in shown]


@pytest.mark.parametrize(
    "role",
    [
        pytest.param(each, marks=() if each == Role.SUPPORT else pytest.mark.full)
        for each in sorted(Role.values)
    ],
)
def test_each_role_finds_what_it_may_list_and_every_link_opens(
    role: str, all_of_it: World, now: datetime
) -> None:
    browser, operator = Browser(), operator_with(role)
    browser.force_login(operator)
    for text in ("acme", "smal", "small", "notes", "stabl", "stable", str(all_of_it.person.pk)[:8]):
        answer = browser.get(SEARCH, {"q": text})
        if answer.status_code == 302:
            assert browser.get(answer["Location"]).status_code == 200
            continue
        for title, table in answer.context["tables"]:
            meta = finders[title].model._meta
            assert operator.has_perm(f"{meta.app_label}.view_{meta.model_name}")
            for row in table.rows:
                assert browser.get(row.href).status_code == 200, (role, row.href)
    if role == Role.RELEASE:
        # It may not list people, so the client is the one that is found.
        opened = browser.get(SEARCH, {"q": "acme"})["Location"]
        assert opened == reverse("admin:accounts_client_change", args=[all_of_it.client.pk])
    else:
        assert "People" in found(browser, "acme")


def test_a_search_takes_one_query_per_kind(console: Browser, all_of_it: World) -> None:
    base = asked(console, "")
    for text in ("acme", REQUEST[:8], "12345678", "1.2"):
        # A number may be anything: an id's beginning, a job, a request id. More than are shown are counted.
        assert asked(console, text) - base <= 14, text


def asked(browser: Browser, text: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert browser.get(SEARCH, {"q": text}).status_code == 200
    return len(queries)
