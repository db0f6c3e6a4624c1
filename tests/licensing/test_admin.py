"""Plans in the console; licences are tried from the client's page."""

import re
from datetime import datetime

import pytest
from django.urls import reverse

from accounts.audit import Actor
from accounts.models import AuditEvent
from licensing.licences import create_client
from licensing.models import Plan
from releases.models import MicroApp
from tests.conftest import Browser

pytestmark = pytest.mark.django_db

TERMS = {
    "name": "Larger",
    "entitlements": "forms, reports",
    "monthly_input_tokens": "2000000",
    "monthly_output_tokens": "",
    "daily_tokens": "",
    "cached_input_percent": "10",
}


@pytest.fixture(autouse=True)
def _apps(db: None, now: datetime) -> None:
    """Entitlements that name no app are asked about once more."""
    for slug in ("forms", "reports", "mail"):
        MicroApp.objects.create(slug=slug, created_at=now)


def test_a_plan_is_added(console: Browser) -> None:
    console.post(reverse("admin:licensing_plan_add"), TERMS)
    plan = Plan.objects.get(name="Larger")
    assert (plan.entitlements, plan.monthly_output_tokens) == (["forms", "reports"], None)
    assert plan.cached_input_percent == 10
    assert AuditEvent.objects.get(action="plan:added").address == Browser.address


def test_a_plan_is_changed_with_a_reason(console: Browser, plan: Plan) -> None:
    address = reverse("admin:licensing_plan_terms", args=[plan.pk])
    assert "Licences on this plan: 0." in console.get(address).content.decode()
    refused = console.post(address, TERMS)
    assert list(refused.context["form"].errors) == ["reason"]
    console.post(address, {**TERMS, "allows_keys": "on", "reason": "A larger contract."})
    plan.refresh_from_db()
    assert (plan.name, plan.monthly_input_tokens) == ("Larger", 2_000_000)
    assert plan.allows_keys


def shown_by(browser: Browser, address: str) -> dict[str, str]:
    """Returns the data that a page would send back unchanged."""
    page = browser.get(address).content.decode()
    fields = re.findall(r'<input [^>]*name="((?:initial-)?\w+)"(?: value="([^"]*)")?', page)
    return {name: value for name, value in fields if name != "csrfmiddlewaretoken"}


def test_the_changes_of_two_operators_to_a_plan_are_both_kept(console: Browser, plan: Plan) -> None:
    address = reverse("admin:licensing_plan_terms", args=[plan.pk])
    mine, hers = shown_by(console, address), shown_by(console, address)
    console.post(address, {**hers, "monthly_input_tokens": "600000", "reason": "A contract."})
    done = console.post(address, {**mine, "daily_tokens": "", "reason": "Another."})
    assert done.status_code == 302
    plan.refresh_from_db()
    assert (plan.monthly_input_tokens, plan.daily_tokens) == (600_000, None)


def test_a_term_that_a_colleague_has_changed_meanwhile_is_shown_before_it_is_overwritten(
    console: Browser, plan: Plan
) -> None:
    address = reverse("admin:licensing_plan_terms", args=[plan.pk])
    mine, hers = shown_by(console, address), shown_by(console, address)
    hers |= {"monthly_input_tokens": "600000", "entitlements": "forms", "reason": "A contract."}
    mine |= {"monthly_input_tokens": "700000", "entitlements": "mail", "reason": "Another."}
    console.post(address, hers)
    refused = console.post(address, mine)
    errors = refused.context["form"].errors
    assert set(errors) == {"monthly_input_tokens", "entitlements"}
    assert "it is now 600000" in errors["monthly_input_tokens"][0]
    assert "it is now forms" in errors["entitlements"][0]
    plan.refresh_from_db()
    assert plan.monthly_input_tokens == 600_000

    seen = dict(re.findall(r'name="(initial-\w+)" value="([^"]*)"', refused.content.decode()))
    assert console.post(address, {**mine, **seen}).status_code == 302
    plan.refresh_from_db()
    assert (plan.monthly_input_tokens, plan.entitlements) == (700_000, ["mail"])
    assert AuditEvent.objects.filter(action="plan:changed").count() == 2


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "Starter"}, "name"),
        ({"entitlements": "no good!"}, "entitlements"),
        ({"entitlements": "forms, Notes"}, "entitlements"),
        ({"monthly_input_tokens": "-1"}, "monthly_input_tokens"),
        ({"daily_tokens": "many"}, "daily_tokens"),
    ],
)
def test_terms_that_cannot_be_stand_beside_their_field(
    console: Browser,
    plan: Plan,
    change: dict[str, str],
    field: str,
) -> None:
    response = console.post(reverse("admin:licensing_plan_add"), {**TERMS, **change})
    assert list(response.context["form"].errors) == [field]
    assert Plan.objects.count() == 1


@pytest.mark.parametrize("order", ["5", "-5"])
def test_plans_are_sorted_by_their_number_of_licences_and_listed_once(
    console: Browser, plan: Plan, by: Actor, now: datetime, order: str
) -> None:
    spare = Plan.objects.create(name="Nobody's")
    for name in ("Acme", "Borealis", "Cirrus"):
        create_client(name=name, plan=plan, by=by, now=now)
    shown = console.get(reverse("admin:licensing_plan_changelist"), {"o": order}).context["cl"]
    rows = [each.name for each in shown.result_list]
    assert rows == ([spare.name, plan.name] if order == "5" else [plan.name, spare.name])
    assert shown.result_count == 2
