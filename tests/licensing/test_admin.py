"""Plans in the console; licences are tried from the client's page."""

import pytest
from django.urls import reverse

from accounts.models import AuditEvent
from licensing.models import Plan
from tests.conftest import Browser

pytestmark = pytest.mark.django_db

TERMS = {
    "name": "Larger",
    "entitlements": "forms, reports",
    "monthly_input_tokens": "2000000",
    "monthly_output_tokens": "",
    "daily_tokens": "",
}


def test_a_plan_is_added(console: Browser) -> None:
    console.post(reverse("admin:licensing_plan_add"), TERMS)
    plan = Plan.objects.get(name="Larger")
    assert (plan.entitlements, plan.monthly_output_tokens) == (["forms", "reports"], None)
    assert AuditEvent.objects.get(action="plan:added").address == Browser.address


def test_a_plan_is_changed_with_a_reason(console: Browser, plan: Plan) -> None:
    address = reverse("admin:licensing_plan_terms", args=[plan.pk])
    assert "Licences on this plan: 0." in console.get(address).content.decode()
    refused = console.post(address, TERMS)
    assert list(refused.context["form"].errors) == ["reason"]
    console.post(address, {**TERMS, "reason": "A larger contract."})
    plan.refresh_from_db()
    assert (plan.name, plan.monthly_input_tokens) == ("Larger", 2_000_000)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "Starter"}, "name"),
        ({"entitlements": "no good!"}, "entitlements"),
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
