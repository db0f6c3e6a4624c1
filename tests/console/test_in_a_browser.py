"""The console as an operator sees it: in Chromium, at a desk in Kolkata."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from accounts.models import AuditEvent, Session, User
from licensing.models import Licence, Standing
from tests.browsers import LONGEST, chromium, note_complaints, take_act
from tests.conftest import PASSWORD
from tests.console.conftest import World
from usage.models import Override

pytestmark = [pytest.mark.wire, pytest.mark.django_db(transaction=True)]

DESK: dict[str, Any] = {"timezone_id": "Asia/Kolkata", "locale": "en-IN"}


@pytest.fixture
def base_url(settings: Any, request: pytest.FixtureRequest) -> str:
    """A server over plain http, which is told so before it starts."""
    settings.SECURE_SSL_REDIRECT = False
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = False
    settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME = "sessionid", "csrftoken"
    address: str = request.getfixturevalue("live_server").url
    return address


@contextmanager
def desk(base_url: str, operator: User, **how: Any) -> Iterator[Page]:
    """A signed-in operator's page. What the browser complains of, or asks of others, fails the test.

    The database is looked at before and after, because the browser's driver does not let Django ask in between.
    """
    complaints: list[str] = []
    asked: list[str] = []
    with chromium() as browser:
        page = browser.new_context(base_url=base_url, **{**DESK, **how}).new_page()
        page.set_default_timeout(LONGEST)
        note_complaints(page, complaints)
        page.on("request", lambda request: asked.append(request.url))
        page.goto("/admin/")
        page.get_by_label("Email").fill(operator.email)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
        yield page
    assert complaints == []
    assert [url for url in asked if not url.startswith((base_url, "data:"))] == []


def test_a_licence_is_put_into_grace_with_a_few_clicks(
    base_url: str, operator: User, world: World
) -> None:
    licence = Licence.objects.get(client__name__startswith="Borealis")
    with desk(base_url, operator) as page:
        page.get_by_role("link", name="Clients").first.click()
        page.get_by_role("link", name="Borealis").click()
        take_act(page, "Change licence status")
        page.get_by_label("Grace: everything works").check()
        page.get_by_label("Grace period ends (UTC)").fill("2100-03-01T20:00")
        expect(page.locator("#id_grace_until + .local-time")).to_have_text(
            "2 Mar 2100 01:30 Asia/Calcutta"
        )
        page.get_by_label("Reason").fill("Agreed by phone.")
        page.get_by_role("button", name="Change licence status").click()
        expect(page.locator(".messagelist")).to_contain_text("is in its grace period until")
        shown = page.locator('time[title="2100-03-01 20:00:00 UTC"]').first
        expect(shown).to_have_text("2 Mar 2100")
    licence.refresh_from_db()
    assert licence.status == Standing.GRACE
    event = AuditEvent.objects.filter(action="licence:operator_set")[:1].get()
    assert (event.actor, event.reason) == (operator.email, "Agreed by phone.")


def test_several_people_are_chosen_and_revoked(base_url: str, operator: User, world: World) -> None:
    with desk(base_url, operator) as page:
        page.goto(reverse("admin:accounts_user_changelist"))
        # A bar of acts on no row at all: sl-design-system/components#2117.
        bar = page.get_by_role("group", name="Actions for the selected rows")
        expect(bar).to_be_hidden()
        for person in world.people[:2]:
            page.get_by_label(f"Choose {person.email}").check()
        expect(bar).to_be_visible()
        page.get_by_role("button", name="End all sessions…").click()
        expect(page.get_by_role("heading", name="2 selected")).to_be_visible()
        expect(page.locator(".effects")).to_contain_text("within 15 seconds")
        page.get_by_label("Reason").fill("Laptops lost.")
        page.get_by_role("button", name="End all sessions").click()
        expect(page.locator(".messagelist")).to_contain_text("Signed out everywhere (2 devices).")
    assert Session.objects.filter(ended_at=None).count() == 1


def test_an_override_is_granted_to_somebody_named_by_email(
    base_url: str, operator: User, world: World
) -> None:
    person = world.people[5]
    with desk(base_url, operator) as page:
        page.goto(reverse("admin:usage_override_add"))
        page.get_by_label("Person").fill(person.email)
        page.get_by_label("Daily tokens").fill("5")
        page.get_by_label("Until (UTC)").fill("2100-01-01T00:00")
        page.get_by_label("Reason").fill("Quarter end.")
        page.get_by_role("button", name="Grant override").click()
        expect(page.locator(".messagelist")).to_contain_text("is in effect")
    assert Override.objects.get(user=person).daily_tokens == 5


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_pages_fit_the_screen(base_url: str, operator: User, world: World, width: int) -> None:
    licence = Licence.objects.get(client=world.client)
    pages = [
        "/admin/",
        reverse("admin:accounts_client_change", args=[world.client.pk]),
        reverse("admin:accounts_user_change", args=[world.person.pk]),
        reverse("admin:accounts_auditevent_changelist"),
        reverse("admin:licensing_licence_status", args=[licence.pk]),
        reverse("admin:usage_override_add"),
        reverse("admin:accounts_client_invite", args=[world.client.pk]),
        reverse("admin:accounts_client_import", args=[world.client.pk]),
        reverse("admin:accounts_user_move", args=[world.person.pk]),
        reverse("admin:accounts_user_erase", args=[world.person.pk]),
    ]
    with desk(base_url, operator, viewport={"width": width, "height": 800}) as page:
        for address in pages:
            page.goto(address)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address


@pytest.mark.parametrize("width", [400, 1280])
def test_the_filters_of_a_list_take_no_more_room_than_they_need(
    base_url: str, operator: User, world: World, width: int
) -> None:
    with desk(base_url, operator, viewport={"width": width, "height": 800}) as page:
        page.goto(reverse("admin:usage_override_changelist"))
        box = page.locator("form.filters").bounding_box()
        assert box is not None
        assert box["height"] < (40 if width == 1280 else 150)


def test_the_console_works_without_scripts(base_url: str, operator: User, world: World) -> None:
    with desk(base_url, operator, java_script_enabled=False) as page:
        page.goto(reverse("admin:accounts_user_revoke", args=[world.person.pk]))
        page.get_by_label("Reason").fill("Laptop lost.")
        page.get_by_role("button", name="End all sessions").click()
        expect(page.locator(".messagelist")).to_contain_text("Signed out everywhere (1 device).")
        expect(page.locator("#zone")).to_have_text("Times: UTC.")


def test_people_are_invited_from_their_clients_page(
    base_url: str, operator: User, world: World
) -> None:
    client = Licence.objects.get(client__name__startswith="Borealis").client
    with desk(base_url, operator) as page:
        page.goto(reverse("admin:accounts_client_change", args=[client.pk]))
        take_act(page, "Invite people")
        page.get_by_label("Emails").fill("ada@borealis.test, bert@borealis.test\nnobody")
        page.get_by_role("button", name="Invite people").click()
        expect(page.locator(".errorlist")).to_contain_text("Line 2: nobody is not an email")
        page.get_by_label("Emails").fill("ada@borealis.test, bert@borealis.test")
        page.get_by_role("button", name="Invite people").click()
        expect(page.locator(".messagelist")).to_contain_text("2 people invited.")
        expect(page.get_by_role("link", name="ada@borealis.test", exact=True)).to_be_visible()
        page.get_by_role("link", name="not accepted").click()
        expect(page.locator("#result_list tbody tr")).to_have_count(2)
    assert User.objects.filter(client=client).count() == 2


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_a_file_of_people_is_looked_at_and_imported(
    base_url: str, operator: User, world: World, tmp_path: Path, scripts: bool
) -> None:
    client = Licence.objects.get(client__name__startswith="Borealis").client
    file = tmp_path / "people.csv"
    file.write_bytes(
        "\N{ZERO WIDTH NO-BREAK SPACE}Name;E-Mail\r\n"
        '"Lovelace; Ada";Ada@borealis.test\r\nBert;bert@borealis.test\r\n'.encode()
    )
    with desk(base_url, operator, java_script_enabled=scripts) as page:
        page.goto(reverse("admin:accounts_client_change", args=[client.pk]))
        for added in ("2", "0"):
            take_act(page, "Import people")
            page.get_by_label("CSV file").set_input_files(file)
            page.get_by_role("button", name="Preview").click()
            if added == "2":
                expect(page.get_by_role("status")).to_contain_text("2 would be added")
                expect(page.locator(".lines")).to_contain_text("ada@borealis.test")
                page.get_by_role("button", name="Add 2 people and invite them").click()
                expect(page.locator(".messagelist")).to_contain_text("2 people added.")
            else:
                expect(page.get_by_role("status")).to_contain_text(
                    "everybody in the file is already here"
                )
    assert User.objects.filter(client=client).count() == 2


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_a_person_is_moved_by_the_name_of_a_client(
    base_url: str, operator: User, world: World, scripts: bool
) -> None:
    with desk(base_url, operator, java_script_enabled=scripts) as page:
        page.goto(reverse("admin:accounts_user_change", args=[world.person.pk]))
        take_act(page, "Move to another client")
        page.get_by_label("Client", exact=True).fill("borealis <script>")
        page.get_by_label("Reason").fill("Changed jobs.")
        page.get_by_role("button", name="Move to another client").click()
        expect(page.locator(".messagelist")).to_contain_text("Signed out everywhere (1 device).")
    world.person.refresh_from_db()
    assert world.person.client != world.client


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_a_person_is_erased_after_their_email_was_typed(
    base_url: str, operator: User, world: World, scripts: bool
) -> None:
    with desk(base_url, operator, java_script_enabled=scripts) as page:
        page.goto(reverse("admin:accounts_user_change", args=[world.person.pk]))
        take_act(page, "Erase")
        expect(page.locator(".effects")).to_contain_text("This cannot be undone.")
        page.get_by_label("Reason").fill("They asked for it.")
        page.get_by_label("Type the person’s email").fill("somebody@else.test")
        page.get_by_role("button", name="Erase").click()
        expect(page.locator(".errorlist")).to_contain_text("not the email of the person")
        page.get_by_label("Type the person’s email").fill(world.person.email)
        page.get_by_role("button", name="Erase").click()
        expect(page.locator(".messagelist")).to_contain_text("has been erased")
        page.locator("#searchbar").fill("person-0")
        page.get_by_role("button", name="Apply").click()
        expect(page.locator("#result_list")).to_have_count(0)
    world.person.refresh_from_db()
    assert world.person.erased_at is not None


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_the_log_of_an_afternoon_is_found(
    base_url: str, operator: User, world: World, scripts: bool
) -> None:
    with desk(base_url, operator, java_script_enabled=scripts) as page:
        page.goto(reverse("admin:accounts_auditevent_changelist"))
        page.get_by_label("Subject").select_option("licence")
        page.get_by_label("Since").fill("2026-01-01T12:00")
        page.get_by_label("Until").fill("2126-01-01T12:00")
        page.get_by_role("button", name="Apply").click()
        expect(page.locator("#result_list tbody tr")).to_have_count(1)
        expect(page.locator("#result_list")).to_contain_text("The invoice is late.")
        page.locator("#result_list").get_by_role("link", name="operator@shell.test").click()
        expect(page.get_by_label("By")).to_have_value("actor=operator%40shell.test")


def test_a_slash_selects_the_words_of_the_search_before(
    base_url: str, operator: User, world: World
) -> None:
    with desk(base_url, operator) as page:
        page.goto(f"{reverse('admin:search')}?q=meridian")
        page.keyboard.type("/abc")
        expect(page.locator("#search")).to_have_value("abc")
