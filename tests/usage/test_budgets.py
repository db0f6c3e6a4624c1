"""Budgets: what a call costs, what a client's month adds up to, and what happens at 80 % and at its end."""

from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, User
from config.composition.attention.listing import items
from config.composition.client_page import SetClientBudget
from config.platform.money import DOLLAR
from config.platform.problems.problem import InvalidRequest
from licensing.licences import create_client
from licensing.models import Plan
from tests.races import race
from tests.usage.ledger import ask as ask_ledger
from tests.usage.ledger import settle
from usage.caps import Reservation
from usage.costs import UNKNOWN, Prices, Spent
from usage.limits import PlanCaps
from usage.models import Budget, UsageRecord
from usage.refusals import BudgetExceeded
from usage.settlement import settle_abandoned
from usage.spending import budgets
from usage.tasks import watch_budgets

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOVEMBER = date(2026, 11, 1)
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)
ROOMY = PlanCaps(monthly_input=None, monthly_output=None, daily=None)
# A token of output is a thousandth of a dollar.
PRICES = Prices(input=2_500_000, cached_input=1_250_000, output=1_000 * DOLLAR)
numbers = count()


@pytest.fixture(autouse=True)
def _operators(settings: Any) -> None:
    settings.OPERATOR_EMAILS = ["ops@shell.test"]
    settings.BASE_URL = "https://shell.test"


def ask(
    user: User,
    *,
    prices: Prices = PRICES,
    now: datetime = NOON,
    labels: dict[str, Any] | None = None,
) -> Reservation:
    return ask_ledger(
        user_id=user.pk,
        client_id=user.client_id or uuid4(),
        session_id=uuid4(),
        model="m",
        provider="p",
        request_id=f"request-{next(numbers)}",
        streamed=False,
        input_estimate=100,
        output_wanted=1_000,
        prices=prices,
        labels=labels,
        plan=ROOMY,
        now=now,
    )


def end(user: User, call: Reservation, now: datetime = NOON, **spent: int) -> UsageRecord:
    settle(
        record_id=call.record_id,
        user_id=user.pk,
        spent=Spent(**spent),
        source=UsageRecord.Source.PROVIDER,
        end=UsageRecord.End.DONE,
        now=now,
    )
    return UsageRecord.objects.get(pk=call.record_id)


def spend(user: User, dollars: int, *, now: datetime = NOON) -> None:
    end(user, ask(user, now=now), now, output=dollars * 1_000)


def allow(client: Client, dollars: int | None, by: Actor, *, now: datetime = NOON) -> None:
    monthly = None if dollars is None else dollars * DOLLAR
    budgets.set_budget(client_id=client.pk, monthly=monthly, reason="Agreed.", by=by, now=now)


def subjects() -> list[str]:
    jobs = ProcrastinateJob.objects.filter(task_name="mail.send").order_by("id")
    return [args["subject"] for args in jobs.values_list("args", flat=True)]


@pytest.mark.django_db
class TestCosts:
    def test_cached_input_costs_its_own_price(self, user: User) -> None:
        record = end(user, ask(user), input=1_000, cached_input=400, output=2)
        assert record.cost == (600 * 2_500_000 + 400 * 1_250_000) // 10**6 + 2_000

    def test_cached_input_without_a_price_costs_as_other_input(self, user: User) -> None:
        call = ask(user, prices=PRICES._replace(cached_input=None))
        assert end(user, call, input=1_000, cached_input=400).cost == 2_500

    def test_cache_writes_cost_their_own_price(self, user: User) -> None:
        call = ask(user, prices=PRICES._replace(cache_write=3_125_000))
        record = end(user, call, input=1_000, cached_input=400, cache_write=500, output=2)
        assert record.cost == 250 + 400 * 1_250_000 // 10**6 + -(-500 * 3_125_000 // 10**6) + 2_000
        assert (record.cache_write_tokens, record.cache_write_price) == (500, 3_125_000)

    def test_cache_writes_without_a_price_cost_as_other_input(self, user: User) -> None:
        assert end(user, ask(user), input=1_000, cache_write=400).cost == 2_500

    def test_a_cost_below_a_millionth_is_rounded_up(self, user: User) -> None:
        cheap = Prices(input=1, cached_input=None, output=1)
        assert end(user, ask(user, prices=cheap), input=1, output=0).cost == 1
        assert end(user, ask(user, prices=cheap), input=10**6, output=1).cost == 2
        assert end(user, ask(user, prices=cheap)).cost == 0

    def test_no_cost_is_known_without_prices(self, user: User) -> None:
        assert end(user, ask(user, prices=UNKNOWN), input=1_000, output=5).cost is None

    def test_a_call_that_died_has_a_cost_too(self, user: User) -> None:
        """It is charged its whole reservation: 100 tokens of input and 1,000 of output."""
        call = ask(user)
        assert settle_abandoned(now=NOON + timedelta(days=1)) == 1
        record = UsageRecord.objects.get(pk=call.record_id)
        assert (record.source, record.cost) == ("estimated", 250 + DOLLAR)

    def test_the_largest_numbers_fit(self, user: User) -> None:
        dear = Prices(input=10**12, cached_input=None, output=10**12)
        assert end(user, ask(user, prices=dear), input=10**9).cost == 10**15
        assert end(user, ask(user, prices=dear), output=10**9).cost == 10**15
        cached = {"input": 10**9, "cached_input": 10**9}
        assert end(user, ask(user, prices=dear), **cached).cost == 10**15
        assert (
            end(user, ask(user, prices=dear._replace(cached_input=10**12)), **cached).cost == 10**15
        )


@pytest.mark.django_db
class TestSpending:
    def test_calls_pass_until_it_is_spent_and_are_refused_then(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 10, by)
        spend(user, 9)
        budgets.watch(now=NOON)
        spend(user, 1)
        budgets.watch(now=NOON)
        with pytest.raises(BudgetExceeded) as refused:
            ask(user)
        problem = refused.value
        assert (problem.status, problem.code) == (429, "budget_exceeded")
        assert problem.members == {"retry_after_iso": "2026-12-01T00:00:00Z"}
        assert problem.headers["Retry-After"] == str(int((DECEMBER - NOON).total_seconds()))
        assert problem.headers["x-should-retry"] == "false"
        assert problem.headers["X-Tokens-Remaining-Month"] == "unlimited"

    def test_a_first_call_of_the_month_is_refused_too(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        other = User.objects.create(email="bert@acme.test", client=organisation)
        allow(organisation, 1, by)
        spend(user, 1)
        budgets.watch(now=NOON)
        with pytest.raises(BudgetExceeded):
            ask(other)

    def test_a_refused_call_leaves_nothing_behind(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 1, by)
        spend(user, 1)
        budgets.watch(now=NOON)
        with pytest.raises(BudgetExceeded):
            ask(user)
        assert UsageRecord.objects.open().count() == 0

    def test_admission_is_one_statement_with_a_budget_as_well(
        self, user: User, organisation: Client, by: Actor, django_assert_num_queries: Any
    ) -> None:
        allow(organisation, 10, by)
        spend(user, 1)
        budgets.watch(now=NOON)
        with django_assert_num_queries(1):
            ask(user)

    def test_running_calls_count_once_they_are_settled(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 1, by)
        running = ask(user)
        budgets.watch(now=NOON)
        assert Budget.objects.get().spent == 0
        end(user, running, output=1_000)
        budgets.watch(now=NOON)
        assert Budget.objects.get().spent == DOLLAR

    def test_a_raised_budget_lets_calls_pass_at_once(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 1, by)
        spend(user, 1)
        budgets.watch(now=NOON)
        allow(organisation, 2, by)
        ask(user)
        allow(organisation, 1, by)
        with pytest.raises(BudgetExceeded):
            ask(user)
        allow(organisation, None, by)
        ask(user)

    def test_the_month_turns_over_by_itself(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 1, by)
        spend(user, 1)
        budgets.watch(now=DECEMBER - timedelta(seconds=1))
        spend(user, 1, now=DECEMBER)
        budgets.watch(now=DECEMBER)
        with pytest.raises(BudgetExceeded):
            ask(user, now=DECEMBER)
        assert len(subjects()) == 2

    def test_a_call_counts_in_the_month_of_its_admission(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 10, by)
        end(user, ask(user), DECEMBER, output=1_000)
        budgets.watch(now=DECEMBER)
        assert Budget.objects.get().spent == 0

    def test_a_worker_with_a_slow_clock_does_not_bring_the_old_month_back(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 10, by)
        spend(user, 3)
        spend(user, 1, now=DECEMBER)
        budgets.watch(now=DECEMBER)
        budgets.watch(now=DECEMBER - timedelta(seconds=1))
        assert Budget.objects.get().spent == DOLLAR

    def test_other_clients_and_calls_without_prices_do_not_count(
        self, user: User, organisation: Client, plan: Plan, by: Actor
    ) -> None:
        other = create_client(name="Borealis", plan=plan, by=by, now=NOON)
        allow(organisation, 1, by)
        allow(other, 1, by)
        end(user, ask(user, prices=UNKNOWN), output=10**9)
        spend(User.objects.create(email="bea@borealis.test", client=other), 1)
        assert budgets.watch(now=NOON) == 2
        ask(user)
        assert Budget.objects.get(client=organisation).spent == 0

    def test_the_client_of_the_time_pays(
        self, user: User, organisation: Client, plan: Plan, by: Actor
    ) -> None:
        """A person who has moved leaves what they have spent behind."""
        allow(organisation, 10, by)
        spend(user, 1)
        User.objects.update(client=create_client(name="Borealis", plan=plan, by=by, now=NOON))
        budgets.watch(now=NOON)
        assert Budget.objects.get().spent == DOLLAR

    def test_sums_are_read_from_the_index_alone(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        spend(user, 1)
        with connection.cursor() as cursor:
            # A year of calls: of a table without rows every index costs the same.
            cursor.execute(
                "INSERT INTO usage_usagerecord SELECT (jsonb_populate_record(call, jsonb_build_object("
                "'id', gen_random_uuid(), 'period', '2026-01-01'::date + make_interval(months => month % 12)))).*"
                " FROM usage_usagerecord call, generate_series(1, 2000) month"
            )
            cursor.execute("ANALYZE usage_usagerecord")
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute("SET LOCAL enable_bitmapscan = off")
            cursor.execute(
                "EXPLAIN SELECT sum(cost) FROM usage_usagerecord WHERE client_id = %s AND period = %s",
                [organisation.pk, NOVEMBER],
            )
            plan = " ".join(line for (line,) in cursor.fetchall())
        assert "Index Only Scan using usage_by_client_and_month" in plan


@pytest.mark.django_db
class TestTelling:
    def test_operators_hear_at_80_percent_and_at_the_end_once_each(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 10, by)
        spend(user, 7)
        budgets.watch(now=NOON)
        assert subjects() == []
        spend(user, 1)
        for _ in range(3):
            budgets.watch(now=NOON)
        assert subjects() == ["Acme has spent 80 % of this month's budget"]
        spend(user, 3)
        for _ in range(3):
            budgets.watch(now=NOON)
        assert subjects()[1:] == ["Acme has spent all of this month's budget"]

    def test_a_budget_that_ends_within_a_minute_is_one_mail(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 1, by)
        spend(user, 5)
        budgets.watch(now=NOON)
        assert subjects() == ["Acme has spent all of this month's budget"]

    def test_its_sum_waits_behind_no_mail(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 10, by)
        spend(user, 8)
        budgets.watch(now=NOON)
        watch_budgets.defer(timestamp=0)
        first, *_ = ProcrastinateJob.objects.order_by("-priority", "id")
        assert ProcrastinateJob.objects.count() == 2
        assert first.task_name == "usage.watch_budgets"

    def test_a_raised_budget_is_heard_of_again(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 1, by)
        spend(user, 1)
        budgets.watch(now=NOON)
        allow(organisation, 10, by)
        budgets.watch(now=NOON)
        spend(user, 7)
        budgets.watch(now=NOON)
        assert subjects()[1:] == ["Acme has spent 80 % of this month's budget"]

    def test_the_front_page_lists_it_until_the_month_is_over(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        def listed(now: datetime) -> list[str]:
            return [str(each) for each in items(now=now) if each.kind.name.startswith("budget")]

        allow(organisation, 10, by)
        spend(user, 8)
        budgets.watch(now=NOON)
        [says] = listed(NOON)
        assert says.startswith("Acme is at 80 % of its budget: ")
        spend(user, 2)
        budgets.watch(now=NOON)
        [says] = listed(NOON)
        assert "refused" in says
        assert listed(DECEMBER) == []

    def test_the_front_page_names_models_that_no_budget_counts(
        self, organisation: Client, by: Actor, settings: Any
    ) -> None:
        def listed() -> list[str]:
            return [str(each) for each in items(now=NOON) if each.kind.area == "Models"]

        assert listed() == []
        allow(organisation, 10, by)
        name = settings.LLM_DEFAULT_MODEL
        says = f"Budgets do not count calls to models without prices: {name}."
        [told] = listed()
        assert told.startswith(
            f"The default model {name} is not among the models, so it has no prices"
        )
        assert says in SetClientBudget().effects(organisation)


@pytest.mark.django_db
class TestSetting:
    def test_setting_a_budget_is_audited_with_its_reason(
        self, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 5, by)
        allow(organisation, None, by)
        events = AuditEvent.objects.filter(action="client:budget_set").order_by("at", "id")
        assert [(each.before, each.after, each.reason) for each in events] == [
            (None, {"monthly": "$5.00"}, "Agreed."),
            ({"monthly": "$5.00"}, None, "Agreed."),
        ]

    @pytest.mark.parametrize(("monthly", "reason"), [(0, "x"), (-1, "x"), (10**16, "x"), (1, " ")])
    def test_a_number_that_is_no_budget_is_refused(
        self, organisation: Client, by: Actor, monthly: int, reason: str
    ) -> None:
        with pytest.raises(InvalidRequest):
            budgets.set_budget(
                client_id=organisation.pk, monthly=monthly, reason=reason, by=by, now=NOON
            )
        assert not Budget.objects.exists()


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_a_budget_that_is_reached_while_calls_run_counts_each_of_them_once(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        people = [
            User.objects.create(email=f"p{n}@acme.test", client=organisation) for n in range(8)
        ]
        allow(organisation, 20, by)

        def calls(person: User) -> int:
            done = 0
            for _ in range(10):
                try:
                    spend(person, 1)
                except BudgetExceeded:
                    break
                done += 1
            return done

        def watch() -> int:
            return sum(budgets.watch(now=NOON) for _ in range(10))

        *done, _, _ = race(
            *(lambda person=person: calls(person) for person in people), watch, watch
        )
        assert all(isinstance(each, int) for each in done), done
        budgets.watch(now=NOON)
        budget = Budget.objects.get()
        assert budget.spent == sum(done) * DOLLAR >= 20 * DOLLAR
        with pytest.raises(BudgetExceeded):
            ask(user)
        assert [each for each in subjects() if "all" in each] == [
            "Acme has spent all of this month's budget"
        ]

    def test_an_operator_and_workers_at_the_same_moment_lose_nothing(
        self, user: User, organisation: Client, by: Actor
    ) -> None:
        allow(organisation, 1, by)
        spend(user, 5)
        acts = [lambda: budgets.watch(now=NOON), lambda: allow(organisation, 10, by)]
        assert not any(isinstance(each, Exception) for each in race(*acts * 4))
        budgets.watch(now=NOON)
        budget = Budget.objects.get()
        assert (budget.monthly, budget.spent) == (10 * DOLLAR, 5 * DOLLAR)
        ask(user)
