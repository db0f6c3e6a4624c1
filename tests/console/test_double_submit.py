"""A form sent twice from one page acts once, and ends where the first did."""

import re
from datetime import datetime
from typing import Any

import pytest
from django.contrib.sessions.models import Session as BrowserSession
from django.urls import reverse

from accounts.models import AuditEvent, Client, User
from config.platform.periods import Period
from licensing.models import Plan
from tests.conftest import Browser
from tests.console.conftest import World
from tests.races import race
from usage.models import Override

pytestmark = pytest.mark.django_db

AGAIN = "already submitted"
EXTRA = "admin:usage_override_add"


def number_on(browser: Browser, address: str) -> str:
    found = re.search(r'name="once" value="(\w+)"', browser.get(address).content.decode())
    assert found, address
    return found[1]


def said(response: Any) -> str:
    return " ".join(str(message) for message in response.context["messages"])


def extra(console: Browser, user: User, now: datetime) -> dict[str, str]:
    """The page of an extra allowance, filled in."""
    return {
        "once": number_on(console, reverse(EXTRA)),
        "user": user.email,
        "on_top": "yes",
        "monthly_input_tokens": "1000",
        "ends_at": f"{Period.of(now).next_month:%Y-%m-%dT%H:%M}",
        "reason": "Quarter end.",
    }


def test_an_extra_allowance_that_is_sent_twice_is_granted_once(
    console: Browser, user: User, now: datetime
) -> None:
    given = extra(console, user, now)
    first = console.post(reverse(EXTRA), given, follow=True)
    second = console.post(reverse(EXTRA), given, follow=True)
    assert AGAIN not in said(first)
    assert AGAIN in said(second)
    assert second.redirect_chain == first.redirect_chain
    assert Override.objects.count() == 1
    assert AuditEvent.objects.filter(action="override:extra_granted").count() == 1

    console.post(reverse(EXTRA), {**given, "monthly_input_tokens": "2000"})
    console.post(reverse(EXTRA), extra(console, user, now))
    assert Override.objects.count() == 3


@pytest.mark.django_db(transaction=True)
def test_a_form_sent_twice_at_the_same_moment_is_done_once_too(
    console: Browser, user: User, now: datetime
) -> None:
    given = extra(console, user, now)

    def send() -> Any:
        # A browser for each, whose requests have nothing of another's: they share the session alone.
        twin = Browser()
        for name, cookie in console.cookies.items():
            twin.cookies[name] = cookie.value
        return twin.post(reverse(EXTRA), given)

    answers = race(*[send] * 4)
    override = Override.objects.get()
    then = reverse("admin:usage_override_change", args=[override.pk])
    assert [getattr(each, "headers", each)["Location"] for each in answers] == [then] * 4


def test_a_client_that_is_added_twice_is_one(console: Browser, plan: Plan) -> None:
    address = reverse("admin:accounts_client_add")
    given = {"once": number_on(console, address), "name": "Cobalt", "plan": plan.pk}
    for _ in range(2):
        done = console.post(address, given)
        page = reverse("admin:accounts_client_change", args=[Client.objects.get().pk])
        assert done["Location"] == page


def test_an_action_that_is_gone_or_not_offered_after_the_first_ends_there_too(
    console: Browser, user: User, organisation: Client
) -> None:
    people = reverse("admin:accounts_user_changelist")
    for act, then in (
        ("disable", reverse("admin:accounts_user_change", args=[user.pk])),
        ("remove", people),
    ):
        address = reverse(f"admin:accounts_user_{act}", args=[user.pk])
        given = {"once": number_on(console, address), "reason": "Has left."}
        for _ in range(2):
            done = console.post(address, given, follow=True)
            assert done.redirect_chain == [(then, 302)], act
        assert AGAIN in said(done)


def test_several_are_done_once(console: Browser, world: World) -> None:
    chosen = [str(each.pk) for each in world.people[:2]]
    asked = console.post(
        reverse("admin:accounts_user_changelist"), {"action": "revoke", "_selected_action": chosen}
    )
    found = re.search(r'name="once" value="(\w+)"', asked.content.decode())
    assert found
    given = {"once": found[1], "target": chosen, "reason": "Office broken into."}
    for _ in range(2):
        done = console.post(reverse("admin:accounts_user_revoke_several"), given, follow=True)
    assert AGAIN in said(done)
    assert AuditEvent.objects.filter(action="user:tokens_revoked").count() == 2


@pytest.mark.django_db(transaction=True)
def test_several_at_the_same_moment_too(console: Browser, world: World) -> None:
    address = reverse("admin:accounts_user_revoke_several")
    chosen = [str(each.pk) for each in world.people]
    given = {"once": "0" * 32, "target": chosen, "reason": "Office broken into."}
    twin = Browser()
    twin.cookies = console.cookies
    answers = race(*(lambda: twin.post(address, given) for _ in range(4)))
    then = reverse("admin:accounts_user_changelist")
    assert [getattr(each, "headers", each)["Location"] for each in answers] == [then] * 4
    revoked = AuditEvent.objects.filter(action="user:tokens_revoked")
    assert revoked.count() == len(chosen)


def test_several_that_were_refused_may_be_sent_again_as_they_are(
    console: Browser, world: World
) -> None:
    address = reverse("admin:accounts_user_revoke_several")
    wrong = {"once": "0" * 32, "target": [str(world.people[0].pk)], "reason": ""}
    assert console.post(address, wrong).status_code == 200
    assert console.post(address, wrong).status_code == 200
    assert console.post(address, {**wrong, "reason": "Lost."}).status_code == 302


def test_a_refused_form_may_be_sent_again_as_it_is(console: Browser, plan: Plan) -> None:
    address = reverse("admin:accounts_user_add")
    given = {"once": number_on(console, address), "email": "new@acme.test", "client": "Later"}
    assert console.post(address, given).status_code == 200
    Client.objects.create(name="Later")
    assert console.post(address, given).status_code == 302
    assert User.objects.filter(email="new@acme.test").exists()


def test_a_secret_shown_once_is_shown_to_whoever_sends_it_twice(
    console: Browser, user: User
) -> None:
    address = reverse("admin:accounts_user_one_time", args=[user.pk])
    given = {"once": number_on(console, address), "reason": "No mail."}
    shown = [console.post(address, given).context["shown"]["password"] for _ in range(2)]
    assert shown[0] != shown[1]


def test_a_session_keeps_few_and_ends_when_it_would_have(
    console: Browser, user: User, now: datetime
) -> None:
    before = BrowserSession.objects.get()
    for number in range(25):
        page = reverse("admin:accounts_user_email", args=[user.pk])
        given = {"once": "x", "email": f"ada-{number}@acme.test", "reason": "Married."}
        console.post(page, given)
    after = BrowserSession.objects.get()
    assert len(after.get_decoded()["sent"]) == 20
    assert after.expire_date == before.expire_date
