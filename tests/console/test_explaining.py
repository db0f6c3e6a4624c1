"""Reasons why a person can or cannot call models, on their page, on its own and after a refusal."""

import re
from datetime import datetime

import pytest
from django.urls import reverse

from accounts.audit import Actor
from accounts.models import Role, User
from config.platform.periods import Period
from licensing.licences import set_operator_status
from licensing.models import Licence, Standing
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_roles import operator_with
from usage.models import MonthlyUsage, Refusal
from usage.stops import stop_model_calls

pytestmark = pytest.mark.django_db


def page(person: User, name: str) -> str:
    return reverse(f"admin:accounts_user_{name}", args=[person.pk])


def text_of(browser: Browser, address: str) -> str:
    return " ".join(browser.get(address).content.decode().split())


def suspend(world: World, by: Actor, now: datetime) -> Licence:
    licence = Licence.objects.get(client=world.client)
    return set_operator_status(
        licence_id=licence.pk, status=Standing.SUSPENDED, reason="Unpaid.", by=by, now=now
    )


def test_a_person_of_a_suspended_client_does_not_look_well(
    console: Browser, world: World, by: Actor, now: datetime
) -> None:
    assert "They can call models" in text_of(console, page(world.person, "change"))
    licence = suspend(world, by, now)
    for name in ("change", "explain"):
        text = text_of(console, page(world.person, name))
        assert "no, licence suspended" in text
        assert "403 licence_suspended" in text
        assert f"by {by.name}: “Unpaid.”" in text
        assert text.count('<li class="fails">') == 1
        assert (
            f'href="{reverse("admin:licensing_licence_resume", args=[licence.pk])}" class="button"'
            in text
        )


def test_the_link_to_an_act_requires_the_right_to_it(
    world: World, by: Actor, now: datetime
) -> None:
    stop_model_calls(user_id=world.person.pk, reason="x", ends_at=None, by=by, now=now)
    restart = f'href="{page(world.person, "restart_calls")}"'
    for role, leads in ((Role.SUPPORT, True), (Role.AUDITOR, False)):
        browser = Browser()
        browser.force_login(operator_with(role))
        text = text_of(browser, page(world.person, "explain"))
        assert "403 model_calls_stopped" in text
        assert (restart in text) is leads


def test_a_stop_is_told_once_and_what_passes_is_one_line(
    console: Browser, world: World, by: Actor, now: datetime
) -> None:
    why = "A loop in a macro."
    stop_model_calls(user_id=world.person.pk, reason=why, ends_at=None, by=by, now=now)
    text = text_of(console, page(world.person, "change")).partition('id="happened"')[0]
    assert text.count(f"“{why}”") == 1
    assert 'class="message' not in text
    assert 'class="chip chip-refused"' not in text
    before, _, after = text.partition('<details class="passing">')
    assert "checks pass</summary>" in after
    looked_at = before.partition('<ul class="checks">')[2]
    assert looked_at.startswith(' <li class="fails">')
    assert looked_at.count("<li") < after.partition("</details>")[0].count("<li")


def test_the_calls_left_this_minute_are_a_number(console: Browser, world: World) -> None:
    text = text_of(console, page(world.person, "explain"))
    assert re.search(r"> (\d+) of \1 calls left this minute", text)


def test_a_model_is_chosen_and_an_unknown_one_is_explained(console: Browser, world: World) -> None:
    text = text_of(console, f"{page(world.person, 'explain')}?model=none-such")
    assert "404 not_found" in text
    assert "none-such is unknown or switched off" in text


def test_a_person_of_no_client_has_nothing_to_explain(console: Browser, operator: User) -> None:
    assert "can call models" not in text_of(console, page(operator, "change"))
    assert console.get(page(operator, "explain")).status_code == 302


def test_a_refusal_is_found_by_its_request_and_leads_to_its_person(
    console: Browser, world: World, now: datetime
) -> None:
    ids = ["01a2096d-091a-7bf9-9f00-b4e54fba1bf9", "their-own-id-1"]
    row = Refusal.objects.create(
        user=world.person,
        client_id=world.client.pk,
        minute=now,
        last_at=now,
        code="budget_exceeded",
        status=429,
        model="small",
        number=2,
        request_ids=ids,
        numbers={"remaining_day": "0"},
    )
    listed = reverse("admin:usage_refusal_changelist")
    for term in (
        *ids,
        ids[0].upper(),
        world.person.email,
        str(world.client.pk),
        str(world.person.pk),
    ):
        assert console.get(f"{listed}?q={term}").context["cl"].result_count == 1, term
    assert console.get(f"{listed}?q=another-id-1").context["cl"].result_count == 0
    text = text_of(console, reverse("admin:usage_refusal_change", args=[row.pk]))
    for shown in (*ids, "Monthly budget spent", page(world.person, "explain")):
        assert shown in text, shown
    theirs = text_of(console, page(world.person, "change"))
    assert "Monthly budget spent" in theirs
    assert f"{listed}?user__id__exact={world.person.pk}&amp;code=budget_exceeded" in theirs
    assert (
        console.get(f"{listed}?user__id__exact={world.person.pk}&code=budget_exceeded")
        .context["cl"]
        .result_count
        == 1
    )


def test_a_cap_that_is_nearly_used_up_warns(console: Browser, world: World, now: datetime) -> None:
    before = text_of(console, page(world.person, "explain")).count("icon-triangle amber")
    month = MonthlyUsage.objects.get(user=world.person, period=Period.of(now).month)
    month.output_used = 95_000
    month.save()
    text = text_of(console, page(world.person, "explain"))
    assert text.count("icon-triangle amber") == before + 1
    assert "A call now is admitted" in text
