"""The page of spending limits: what it shows, and its acts."""

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.audit import Actor
from accounts.models import AuditEvent, User
from config.platform.money import DOLLAR
from llmproxy.models import LanguageModel, Provider, Route
from tests.conftest import Browser
from tests.console.test_roles import operator_with
from tests.usage.test_budgets import ask, end
from usage.models import SpendLimit, UsageRecord
from usage.spending.daily import count_days
from usage.spending.spend_limits import set_spend_limit, watch

pytestmark = pytest.mark.django_db
LIMITS = "/admin/usage/spendlimit/"


def words(browser: Browser, address: str) -> str:
    response = browser.get(address)
    assert response.status_code == 200, address
    return " ".join(response.content.decode().split())


@pytest.fixture
def spent(user: User, by: Actor) -> SpendLimit:
    """A limit of ten dollars a day at the first provider, of which all is spent."""
    now = timezone.now()
    limit = set_spend_limit(
        provider="first", daily=10 * DOLLAR, monthly=100 * DOLLAR, reason="x", by=by, now=now
    )
    assert limit is not None
    call = end(user, ask(user, now=now), now, output=10_000)
    UsageRecord.objects.filter(pk=call.pk).update(provider="first")
    count_days(now=now)
    watch(now=now)
    limit.refresh_from_db()
    return limit


def test_the_list_says_what_is_spent_and_until_when_calls_stop(
    console: Browser, spent: SpendLimit
) -> None:
    page = words(console, LIMITS)
    assert "$10.00 of $10.00 (100 %)" in page
    assert "$10.00 of $100.00 (10 %)" in page
    assert "Stopped until" in page
    assert "first" in words(console, f"{LIMITS}{spent.pk}/change/")


def test_a_count_of_yesterday_is_not_shown_as_todays(console: Browser, spent: SpendLimit) -> None:
    yesterday = timezone.now().date() - timedelta(days=1)
    SpendLimit.objects.update(day=yesterday)
    assert "$0.00 of $10.00 (0 %)" in words(console, LIMITS)


def test_a_limit_is_set_changed_and_removed(console: Browser) -> None:
    provider = Provider.objects.create(name="first", base_url="https://one.test")
    model = LanguageModel.objects.create(name="unpriced-one", provider_name="u")
    Route.objects.update_or_create(model=model, provider=provider, defaults={"provider_name": "u"})
    page = words(console, f"{LIMITS}add/?provider=first")
    assert "Calls to models without prices are not counted: unpriced-one" in page
    assert "70 seconds" in page
    form = {"provider": "first", "daily": "12.50", "monthly": "", "reason": "Agreed."}
    assert console.post(f"{LIMITS}add/", form).status_code == 302
    limit = SpendLimit.objects.get()
    assert (limit.provider, limit.daily, limit.monthly) == ("first", 12_500_000, None)
    change = f"{LIMITS}{limit.pk}/amounts/"
    assert 'value="12.50"' in words(console, change)
    assert console.post(change, {"monthly": "300", "reason": "More."}).status_code == 302
    limit.refresh_from_db()
    assert (limit.daily, limit.monthly) == (None, 300 * DOLLAR)
    assert console.post(change, {"reason": "No more."}).status_code == 302
    assert not SpendLimit.objects.exists()
    assert AuditEvent.objects.filter(action="spend_limit:set", target="first").count() == 3


def test_a_limit_is_not_replaced_or_removed_where_one_is_added(
    console: Browser, spent: SpendLimit
) -> None:
    Provider.objects.create(name="first", base_url="https://one.test")
    for amounts, field in (({}, "provider"), ({"daily": "5"}, "provider")):
        answer = console.post(f"{LIMITS}add/", {"provider": "first", "reason": "x", **amounts})
        assert field in answer.context["form"].errors
    answer = console.post(f"{LIMITS}add/", {"provider": "", "reason": "x"})
    assert "daily" in answer.context["form"].errors
    [limit] = SpendLimit.objects.all()
    assert (limit.daily, limit.monthly) == (spent.daily, spent.monthly)


@pytest.mark.parametrize("amount", ["0", "-1", "0.001", "1e400", "12,5", "nan"])
def test_no_amount_that_is_none_is_taken(console: Browser, amount: str) -> None:
    form = {"provider": "", "daily": amount, "reason": "x"}
    answer = console.post(f"{LIMITS}add/", form)
    assert answer.status_code == 200
    assert "daily" in answer.context["form"].errors
    assert not SpendLimit.objects.exists()


def test_a_provider_that_is_none_is_not_taken(console: Browser) -> None:
    answer = console.post(f"{LIMITS}add/", {"provider": "gone", "daily": "1", "reason": "x"})
    assert "provider" in answer.context["form"].errors


def test_calls_are_let_pass_and_held_again(console: Browser, spent: SpendLimit) -> None:
    page = f"{LIMITS}{spent.pk}/pass/"
    assert "nothing limits what they cost until midnight" in words(console, page)
    console.post(page, {"reason": "A deadline."})
    assert "Calls pass today" in words(console, LIMITS)
    spent.refresh_from_db()
    assert spent.passes(timezone.now())
    console.post(f"{LIMITS}{spent.pk}/hold/", {"reason": "Enough."})
    assert "Stopped until" in words(console, LIMITS)


def test_support_sees_them_and_changes_none(spent: SpendLimit) -> None:
    browser = Browser()
    browser.force_login(operator_with("support"))
    assert "Stopped until" in words(browser, LIMITS)
    for act in ("amounts", "pass", "hold"):
        assert browser.get(f"{LIMITS}{spent.pk}/{act}/").status_code == 403
    assert browser.get(f"{LIMITS}add/").status_code == 403


def test_the_overview_says_it_with_its_act(console: Browser, spent: SpendLimit) -> None:
    page = words(console, "/admin/")
    assert "reached today’s spending limit" in page
    assert f"{LIMITS}{spent.pk}/pass/" in page
