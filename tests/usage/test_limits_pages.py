"""The lists of limits and budgets: who has spent how much of what, and the acts that lead on from there."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, User
from licensing.licences import create_client
from licensing.models import Plan
from tests.conftest import Browser
from tests.console.test_roles import operator_with
from tests.console.test_usage_and_money import use
from tests.usage.test_budgets import allow
from usage.models import Budget, MonthlyUsage
from usage.spending import budgets
from usage.spending.daily import count_days
from usage.stops import stop_model_calls

pytestmark = pytest.mark.django_db
BUDGETS, STOPS, MONTHS = (f"/admin/usage/{model}/" for model in ("budget", "stop", "monthlyusage"))


def text(browser: Browser, address: str) -> str:
    response = browser.get(address)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def test_a_list_of_budgets_tells_spent_share_and_forecast(
    console: Browser, organisation: Client, user: User, by: Actor
) -> None:
    now = timezone.now()
    use(user, output=3_000)
    use(user, output=4_000, now=now - timedelta(weeks=1))
    allow(organisation, 2, by)
    budgets.watch(now=now)
    count_days(now=now)
    page = text(console, BUDGETS)
    budget = Budget.objects.get()
    assert f"{100 * budget.spent // budget.monthly} %" in page
    assert "share-over" in page
    assert "spent: model calls are refused" in page
    assert f'href="/admin/accounts/client/{organisation.pk}/budget/"' in page


def test_a_list_of_budgets_asks_once_for_all_rows(
    console: Browser, organisation: Client, plan: Plan, by: Actor
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            text(console, BUDGETS)
        return len(found)

    allow(organisation, 2, by)
    few = queries()
    for number in range(6):
        client = create_client(name=f"More {number}", plan=plan, by=by, now=timezone.now())
        allow(client, 3, by)
    assert queries() == few


def test_a_budget_is_set_from_the_list(organisation: Client) -> None:
    browser = Browser()
    browser.force_login(operator_with("licensing"))
    page = f"{BUDGETS}add/"
    assert "budget_exceeded" in text(browser, page)
    given = {"client": organisation.pk, "monthly": "12.50", "reason": "Agreed."}
    assert browser.post(page, given)["Location"] == BUDGETS
    assert Budget.objects.get().monthly == 12_500_000
    assert AuditEvent.objects.get(action="client:budget_set").reason == "Agreed."


def test_links_to_budgets_require_the_right_to_set_them(organisation: Client, by: Actor) -> None:
    allow(organisation, 2, by)
    browser = Browser()
    browser.force_login(operator_with("support"))
    assert "/budget/" not in text(browser, BUDGETS).replace(BUDGETS, "")
    assert browser.get(f"{BUDGETS}add/").status_code == 403


def test_a_list_of_stops_has_those_in_force_with_their_way_back(
    console: Browser, user: User, organisation: Client, by: Actor
) -> None:
    now = timezone.now()
    over = User.objects.create(email="over@acme.test", client=organisation)
    stop_model_calls(
        user_id=user.pk, reason="A loop.", ends_at=None, by=by, now=now - timedelta(hours=2)
    )
    stop_model_calls(
        user_id=over.pk,
        reason="Ended.",
        ends_at=now - timedelta(hours=1),
        by=by,
        now=now - timedelta(hours=2),
    )
    page = text(console, STOPS)
    assert "A loop." in page
    assert "over@acme.test" not in page
    assert f'href="/admin/accounts/user/{user.pk}/restart_calls/"' in page


def test_people_at_or_near_a_cap_are_found(console: Browser, organisation: Client) -> None:
    month = timezone.now().date().replace(day=1)
    for name, used in (("all", 100), ("near", 80), ("far", 79)):
        MonthlyUsage.objects.create(
            user=User.objects.create(email=f"{name}@acme.test", client=organisation),
            period=month,
            day=month,
            output_used=used,
            output_cap=100,
            input_used=5,
        )
    near, full = text(console, f"{MONTHS}?near=80"), text(console, f"{MONTHS}?near=100")
    assert [name for name in ("all", "near", "far") if f"{name}@" in near] == ["all", "near"]
    assert [name for name in ("all", "near", "far") if f"{name}@" in full] == ["all"]
