"""A charge that an operator lowers: ledger, totals, statement and budget follow, and the first charge is kept."""

from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum
from django.db.models.functions import Coalesce
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, User
from config.platform.money import DOLLAR
from config.platform.problems.problem import InvalidRequest
from tests.races import race
from tests.usage.ledger import ask as ask_ledger
from tests.usage.ledger import settlement
from tests.usage.test_alerts import mails
from tests.usage.test_budgets import DECEMBER, NOON, PRICES, allow, subjects
from usage import alerts
from usage.costs import Spent
from usage.limits import PlanCaps
from usage.models import Alert, Budget, KeyMonth, MonthlyUsage, UsageRecord
from usage.settlement import Excess, settle
from usage.spending import budgets
from usage.spending.corrections import lower_charge
from usage.spending.statements import Statement
from usage.spending.summaries import summary

KEY = "018f2d6e-0000-7000-8000-000000000001"
PLAN = PlanCaps(monthly_input=5_000_000, monthly_output=100_000, daily=5_000_000)


@pytest.fixture(autouse=True)
def _operators(settings: Any) -> None:
    settings.OPERATOR_EMAILS = ["ops@shell.test"]
    settings.BASE_URL = "https://shell.test"


def charged(user: User, *, now: datetime = NOON, percent: int = 100, **spent: int) -> UsageRecord:
    """A call by a key with a cap of its own, whose provider reported too much."""
    reservation = ask_ledger(
        user_id=user.pk,
        client_id=user.client_id,
        session_id=None,
        key_id=KEY,
        key_cap=90_000,
        model="m",
        request_id="request-1",
        streamed=False,
        input_estimate=20_000,
        output_wanted=100,
        prices=PRICES,
        plan=replace(PLAN, cached_percent=percent),
        now=now,
    )
    asked = settlement(
        record_id=reservation.record_id,
        user_id=user.pk,
        spent=Spent(**spent),
        source=UsageRecord.Source.PROVIDER,
        end=UsageRecord.End.DONE,
        by_capped_key=True,
        excess=Excess(sum(spent.values()), 81_200),
    )
    settle(asked, now=now)
    return UsageRecord.objects.get(pk=reservation.record_id)


def lower(call: UsageRecord, by: Actor, *, to: tuple[int, int], reason: str = "Invoice.") -> Any:
    return lower_charge(
        record_id=call.pk, input_tokens=to[0], output_tokens=to[1], reason=reason, by=by, now=NOON
    )


def assert_totals_are_the_ledger(user: User, *, month: date, day_used: int) -> None:
    rows = UsageRecord.objects.filter(user=user, period=month)
    towards_caps = Sum(Coalesce("capped_input", "input_tokens"))
    sums = rows.aggregate(input=towards_caps, output=Sum("output_tokens"))
    totals = MonthlyUsage.objects.get(user=user, period=month)
    assert (totals.input_used, totals.output_used) == (sums["input"], sums["output"])
    assert totals.day_used == day_used
    key = KeyMonth.objects.get(key_id=KEY, period=month)
    assert key.output_used == sums["output"]


@pytest.mark.django_db
class TestALoweredCharge:
    def test_takes_day_month_key_cost_and_statement_with_it(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        charged(user, input=100, output=50)
        call = charged(user, input=582_250, cached_input=500_000, output=8_000, reasoning=7_000)
        lower(call, by, to=(20_000, 100))
        call.refresh_from_db()
        assert (call.input_tokens, call.output_tokens) == (20_000, 100)
        assert (call.cached_input_tokens, call.reasoning_tokens) == (20_000, 100)
        assert call.cost == 20_000 * 1_250_000 // 10**6 + 100 * DOLLAR // 1_000
        month = call.period
        assert_totals_are_the_ledger(user, month=month, day_used=20_250)
        total = Statement(client_id=organisation.pk, month=month).total()
        assert (total.input, total.output) == (20_100, 150)
        assert total.cost == call.cost + UsageRecord.objects.exclude(pk=call.pk).get().cost
        told = summary(user_id=user.pk, plan=PLAN, now=NOON)
        assert [(each["input"], each["output"]) for each in told.by_day] == [(20_100, 150)]

    def test_waits_for_a_count_before_it_holds_what_calls_need(self, user: User, by: Actor) -> None:
        call = charged(user, input=100, output=50)
        with CaptureQueriesContext(connection) as ran:
            lower(call, by, to=(20, 10))
        asked = [each["sql"] for each in ran.captured_queries]
        waits = next(n for n, sql in enumerate(asked) if "pg_advisory_xact_lock" in sql)
        assert waits < next(
            n for n, sql in enumerate(asked) if 'UPDATE "usage_monthlyusage"' in sql
        )

    def test_counts_cached_input_by_the_percent_of_its_plan(self, user: User, by: Actor) -> None:
        call = charged(user, percent=10, input=9_000, cached_input=8_000, output=800)
        assert call.capped_input == 1_800
        lower(call, by, to=(4_999, 800))
        call.refresh_from_db()
        # Rounded up, as at its settlement.
        assert (call.cached_input_tokens, call.capped_input) == (4_999, 500)
        assert_totals_are_the_ledger(user, month=call.period, day_used=1_300)

    def test_keeps_what_it_was_charged_first_and_how_that_was_known(
        self, user: User, by: Actor
    ) -> None:
        call = charged(user, input=9_000, output=800, cache_write=7)
        first = call.cost
        lower(call, by, to=(5_000, 800))
        lower(call, by, to=(5_000, 16), reason="Once more.")
        call.refresh_from_db()
        assert call.as_settled == {
            "input_tokens": 9_000,
            "cached_input_tokens": 0,
            "cache_write_tokens": 7,
            "output_tokens": 800,
            "reasoning_tokens": 0,
            "cost": first,
        }
        assert (call.source, call.end, call.is_implausible) == ("provider", "done", True)
        again, event = AuditEvent.objects.filter(action="charge:lowered")
        assert (event.target_id, event.reason) == (str(call.pk), "Invoice.")
        assert event.before["input_tokens"] == 9_000
        assert event.after == again.before
        assert again.after["output_tokens"] == 16

    def test_a_lowered_charge_of_a_past_month_leaves_this_one(self, user: User, by: Actor) -> None:
        call = charged(user, input=9_000, output=800)
        charged(user, now=DECEMBER, input=10, output=5)
        lower(call, by, to=(0, 0))
        assert_totals_are_the_ledger(user, month=call.period, day_used=0)
        assert_totals_are_the_ledger(user, month=DECEMBER.date(), day_used=15)

    def test_a_lowered_charge_of_another_day_leaves_today(self, user: User, by: Actor) -> None:
        call = charged(user, input=9_000, output=800)
        charged(user, now=NOON + timedelta(days=1), input=10, output=5)
        lower(call, by, to=(1_000, 0))
        assert_totals_are_the_ledger(user, month=call.period, day_used=15)

    def test_lets_the_calls_of_a_client_pass_whose_budget_it_had_used_up(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 4, by)
        call = charged(user, input=0, output=8_000)
        budgets.watch(now=NOON)
        lower(call, by, to=(0, 1_000))
        budgets.watch(now=NOON)
        budget = Budget.objects.get()
        assert (budget.spent, budget.exceeded_at, budget.warned_at) == (DOLLAR, None, None)
        charged(user, input=0, output=1)
        assert subjects() == ["Acme has spent all of this month's budget"]

    @pytest.mark.parametrize(
        ("to", "reason", "where"),
        [
            ((9_001, 800), "x", "/input_tokens"),
            ((9_000, 801), "x", "/output_tokens"),
            ((-1, 800), "x", "/input_tokens"),
            ((9_000, 800), "x", ""),
            ((9_000, 0), " ", "/reason"),
        ],
    )
    def test_is_lower_and_has_a_reason(
        self, user: User, by: Actor, to: tuple[int, int], reason: str, where: str
    ) -> None:
        call = charged(user, input=9_000, output=800)
        with pytest.raises(InvalidRequest) as refused:
            lower(call, by, to=to, reason=reason)
        assert [each.pointer for each in refused.value.errors] == [where]
        call.refresh_from_db()
        assert (call.input_tokens, call.output_tokens, call.as_settled) == (9_000, 800, None)

    def test_is_of_a_call_that_has_ended(self, user: User, by: Actor) -> None:
        call = charged(user, input=9_000, output=800)
        UsageRecord.objects.update(state="open", settled_at=None, source="", end="")
        with pytest.raises(UsageRecord.DoesNotExist):
            lower(call, by, to=(0, 0))


@pytest.mark.django_db
def test_a_mail_about_a_report_leads_to_the_call(user: User) -> None:
    call = charged(user, input=582_250, output=1)
    alerts.mail_waiting(now=NOON)
    assert Alert.objects.get(kind="report").record_id == call.pk
    page = reverse("admin:usage_usagerecord_change", args=[call.pk])
    person = reverse("admin:accounts_user_change", args=[user.pk])
    [mail] = [each for each in mails() if "reported too many" in each["subject"]]
    assert f"https://shell.test{page}" in mail["text"]
    assert f"https://shell.test{person}" in mail["text"]


@pytest.mark.django_db(transaction=True)
def test_operators_and_calls_at_the_same_moment_lose_nothing(user: User, by: Actor) -> None:
    call = charged(user, input=9_000, output=800)
    acts = [
        lambda: lower(call, by, to=(100, 50)),
        lambda: charged(user, input=10, output=5),
    ]
    results = race(*acts * 4)
    wrong = [each for each in results if isinstance(each, Exception)]
    assert all(isinstance(each, InvalidRequest) for each in wrong)
    assert len(wrong) == 3
    assert_totals_are_the_ledger(user, month=call.period, day_used=4 * 15 + 150)
