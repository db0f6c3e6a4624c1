"""Billing in the console: who pays, and held suspensions that an operator confirms."""

from datetime import datetime

import pytest
from django.urls import reverse

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, Role, User
from licensing import suspension_guard
from licensing.licences import create_client
from licensing.models import HeldSuspension, Licence, Plan
from licensing.suspension_guard import SuspensionsHeld
from tests.conftest import Browser
from tests.console.test_roles import operator_with

pytestmark = pytest.mark.django_db
CUSTOMER = "cus_NffrFeUfNV2Hib"


def held(plan: Plan, *, by: Actor, now: datetime, number: int = 12) -> HeldSuspension:
    """Returns the held suspensions of a run that would suspend so many."""
    clients = [
        create_client(name=f"Debtor {each:02}", plan=plan, by=by, now=now) for each in range(number)
    ]
    ids = [client.licence.pk for client in clients]
    with pytest.raises(SuspensionsHeld):
        suspension_guard.check(job="sync_subscriptions", licence_ids=ids, by=by, now=now)
    return HeldSuspension.objects.get(ended_at=None)


def page(row: HeldSuspension, act: str = "change") -> str:
    return reverse(f"admin:licensing_heldsuspension_{act}", args=[row.pk])


def words(browser: Browser, address: str) -> str:
    return " ".join(browser.get(address).content.decode().split())


def test_the_front_page_leads_to_held_suspensions_until_they_are_confirmed(
    console: Browser, plan: Plan, by: Actor, now: datetime
) -> None:
    row = held(plan, by=by, now=now)
    front = words(console, "/admin/")
    assert "12 of 12 clients at once." in front
    assert page(row) in front
    console.post(page(row, "confirm"), {"reason": "They have all left."})
    assert "clients at once" not in words(console, "/admin/")


def test_its_page_names_the_clients_and_the_effect_of_confirming(
    console: Browser, plan: Plan, by: Actor, now: datetime
) -> None:
    row = held(plan, by=by, now=now)
    assert "Debtor 00, Debtor 01" in words(console, page(row))
    asked = words(console, page(row, "confirm"))
    assert "The next run of sync_subscriptions suspends 12 of 12 clients." in asked
    assert HeldSuspension.objects.get().is_held


def test_confirming_requires_a_reason_and_is_audited(
    console: Browser, operator: User, plan: Plan, by: Actor, now: datetime
) -> None:
    row = held(plan, by=by, now=now)
    refused = console.post(page(row, "confirm"), {"reason": " "})
    assert set(refused.context["form"].errors) == {"reason"}
    console.post(page(row, "confirm"), {"reason": "They have all left."})
    row.refresh_from_db()
    assert (row.is_held, row.confirmed_by) == (False, operator.email)
    event = AuditEvent.objects.get(action="brake:confirmed")
    assert (event.actor, event.address, event.reason) == (
        operator.email,
        Browser.address,
        "They have all left.",
    )
    again = console.post(page(row, "confirm"), {"reason": "Twice."}, follow=True)
    assert "This action is not available" in again.content.decode()
    assert AuditEvent.objects.filter(action="brake:confirmed").count() == 1


def test_held_suspensions_that_others_have_replaced_cannot_be_confirmed(
    console: Browser, plan: Plan, by: Actor, now: datetime
) -> None:
    row = held(plan, by=by, now=now)
    ids = [*row.licence_ids[:-1]]
    with pytest.raises(SuspensionsHeld):
        suspension_guard.check(job="sync_subscriptions", licence_ids=ids, by=by, now=now)
    console.post(page(row, "confirm"), {"reason": "Yes."})
    assert HeldSuspension.objects.get(ended_at=None).is_held
    assert not AuditEvent.objects.filter(action="brake:confirmed").exists()


def test_the_customer_is_changed_with_a_reason(console: Browser, organisation: Client) -> None:
    address = reverse("admin:licensing_licence_customer", args=[organisation.licence.pk])
    assert "From the next nightly run on" in words(console, address)
    refused = console.post(address, {"stripe_customer_id": CUSTOMER})
    assert set(refused.context["form"].errors) == {"reason"}
    console.post(address, {"stripe_customer_id": f" {CUSTOMER} ", "reason": "Signed."})
    assert CUSTOMER in words(
        console, reverse("admin:accounts_client_change", args=[organisation.pk])
    )
    event = AuditEvent.objects.get(action="licence:customer_set")
    assert (event.before, event.after) == (
        {"stripe_customer_id": ""},
        {"stripe_customer_id": CUSTOMER},
    )


@pytest.mark.parametrize("given", ["sub_1Nf", "cus_", "cus_a b", "https://dashboard.test/cus_1"])
def test_a_text_that_is_no_customer_is_refused(
    console: Browser, organisation: Client, given: str
) -> None:
    address = reverse("admin:licensing_licence_customer", args=[organisation.licence.pk])
    refused = console.post(address, {"stripe_customer_id": given, "reason": "Signed."})
    assert set(refused.context["form"].errors) == {"stripe_customer_id"}


def test_a_customer_of_another_client_is_refused_beside_the_field(
    console: Browser, organisation: Client, plan: Plan, by: Actor, now: datetime
) -> None:
    other = create_client(name="Other", plan=plan, by=by, now=now)
    Licence.objects.filter(client=other).update(stripe_customer_id=CUSTOMER)
    address = reverse("admin:licensing_licence_customer", args=[organisation.licence.pk])
    refused = console.post(address, {"stripe_customer_id": CUSTOMER, "reason": "Signed."})
    assert set(refused.context["form"].errors) == {"stripe_customer_id"}


def test_an_operator_who_may_only_look_changes_nothing(
    stranger: Browser, organisation: Client, plan: Plan, by: Actor, now: datetime
) -> None:
    row = held(plan, by=by, now=now)
    stranger.force_login(operator_with(Role.AUDITOR))
    text = words(stranger, page(row))
    assert "Debtor 00" in text
    assert "Confirm suspensions" not in text
    customer = reverse("admin:licensing_licence_customer", args=[organisation.licence.pk])
    for address in (page(row, "confirm"), customer):
        assert stranger.get(address).status_code == 403
        given = {"reason": "x", "stripe_customer_id": CUSTOMER}
        assert stranger.post(address, given).status_code == 403
    assert HeldSuspension.objects.get().is_held


def test_an_operator_who_may_not_look_does_not_see_it(
    stranger: Browser, plan: Plan, by: Actor, now: datetime
) -> None:
    row = held(plan, by=by, now=now)
    stranger.force_login(operator_with(Role.SUPPORT))
    assert stranger.get(page(row)).status_code == 403


@pytest.mark.parametrize("rest", ["", "{}/", "{}/change/", "{}/history/", "?job=a&o=2"])
def test_an_address_of_before_leads_to_held_suspensions(
    console: Browser, plan: Plan, by: Actor, now: datetime, rest: str
) -> None:
    rest = rest.format(held(plan, by=by, now=now).pk)
    answer = console.get(f"/admin/licensing/brake/{rest}")
    assert (answer.status_code, answer.headers["Location"]) == (
        307,
        f"/admin/licensing/heldsuspension/{rest}",
    )


@pytest.mark.parametrize("odd", ["%0D%0AX-Bad: 1", "%252e", "//evil.example", "ü"])
def test_an_odd_address_of_before_stays_below_the_page(console: Browser, odd: str) -> None:
    answer = console.get(f"/admin/licensing/brake/{odd}")
    assert answer.status_code == 307
    assert answer.headers["Location"].startswith("/admin/licensing/heldsuspension/")
    assert "X-Bad" not in answer.headers


def test_a_form_that_the_release_before_has_shown_confirms(
    console: Browser, plan: Plan, by: Actor, now: datetime
) -> None:
    row = held(plan, by=by, now=now)
    address, fields = f"/admin/licensing/brake/{row.pk}/confirm/", {"reason": "They have left."}
    console.post(address, fields, follow=True)
    row.refresh_from_db()
    assert not row.is_held
