"""Caps and settlement: what is reserved, what is granted, what is refused, and that the sums agree."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models import Sum
from django.db.models.functions import Coalesce

from accounts.models import User
from config.platform.problems.problem import Problem
from tests.races import race
from tests.usage.ledger import ask as ask_ledger
from tests.usage.ledger import settle
from usage.caps import Reservation
from usage.costs import Prices, Spent
from usage.limits import PlanCaps, balance
from usage.models import MonthlyUsage, Override, UsageRecord
from usage.refusals import CapReserved, DailyLimitReached, MonthlyCapExceeded
from usage.settlement import After, settle_abandoned

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
ROOMY = PlanCaps(monthly_input=None, monthly_output=None, daily=None)
# The input of a record that counts.
COUNTS = Coalesce("capped_input", "input_tokens")
numbers = count()


def caps(
    monthly_input: int | None = None, monthly_output: int | None = None, daily: int | None = None
) -> PlanCaps:
    return PlanCaps(monthly_input=monthly_input, monthly_output=monthly_output, daily=daily)


def ask(
    user: User, plan: PlanCaps, *, prompt: int = 100, output: int = 1000, now: datetime = NOON
) -> Reservation:
    return ask_ledger(
        user_id=user.pk,
        client_id=user.client_id,
        session_id=uuid4(),
        model="m",
        provider="p",
        request_id=f"request-{next(numbers)}",
        streamed=False,
        input_estimate=prompt,
        output_wanted=output,
        plan=plan,
        now=now,
    )


def settled(
    reservation: Reservation, *, prompt: int, output: int, now: datetime = NOON
) -> After | None:
    return settle(
        record_id=reservation.record_id,
        user_id=UsageRecord.objects.get(pk=reservation.record_id).user_id,
        spent=Spent(input=prompt, output=output),
        source=UsageRecord.Source.PROVIDER,
        end=UsageRecord.End.DONE,
        now=now,
    )


def done(reservation: Reservation, *, prompt: int, output: int, now: datetime = NOON) -> bool:
    return settled(reservation, prompt=prompt, output=output, now=now) is not None


def _says(words: str) -> Callable[[Problem], bool]:
    return lambda problem: words in problem.detail


def assert_totals_are_the_ledger(user: User) -> None:
    """The running row is the sum of the records, to the token."""
    for month in MonthlyUsage.objects.filter(user=user):
        records = UsageRecord.objects.filter(user=user, period=month.period)
        settled = records.filter(state="settled").aggregate(
            i=Sum(COUNTS, default=0), o=Sum("output_tokens", default=0)
        )
        held = records.open().aggregate(
            i=Sum("reserved_input", default=0), o=Sum("reserved_output", default=0)
        )
        today = records.filter(day=month.day)
        day = today.filter(state="settled").aggregate(
            i=Sum(COUNTS, default=0), o=Sum("output_tokens", default=0)
        )
        day_held = today.open().aggregate(
            i=Sum("reserved_input", default=0), o=Sum("reserved_output", default=0)
        )
        assert (month.input_used, month.output_used) == (settled["i"], settled["o"])
        assert (month.input_reserved, month.output_reserved) == (held["i"], held["o"])
        assert month.day_used == day["i"] + day["o"]
        assert month.day_reserved == day_held["i"] + day_held["o"]


@pytest.mark.django_db
class TestReserving:
    def test_a_call_reserves_what_it_may_cost(self, user: User) -> None:
        reservation = ask(user, caps(10_000, 5_000, 20_000), prompt=300, output=700)
        record = UsageRecord.objects.get(pk=reservation.record_id)
        assert (record.state, record.reserved_input, record.reserved_output) == ("open", 300, 700)
        assert reservation.output_limit == 700
        assert reservation.remaining_month == 5_000, "the scarcer dimension, without this call"
        assert (reservation.remaining_day, reservation.day_cap) == (20_000, 20_000)
        assert record.expires_at == NOON + timedelta(seconds=660)
        assert_totals_are_the_ledger(user)

    def test_the_rest_before_a_call_is_less_by_others_that_run_and_not_by_itself(
        self, user: User
    ) -> None:
        plan = caps(10_000, 5_000, 20_000)
        ask(user, plan, prompt=6_000, output=700)
        second = ask(user, plan, prompt=300, output=700)
        assert (second.remaining_month, second.remaining_day) == (4_000, 13_300)
        third = ask(user, plan, prompt=100, output=100)
        assert (third.remaining_month, third.remaining_day) == (3_600, 12_300)

    def test_the_rest_after_a_call_has_its_reservation_back(self, user: User) -> None:
        plan = caps(10_000, 5_000, 20_000)
        ask(user, plan, prompt=50, output=100)
        after = settled(ask(user, plan, prompt=300, output=4_000), prompt=200, output=40)
        assert after == After(remaining_month=4_860, taken_today=390)

    def test_everything_is_granted_without_caps(self, user: User) -> None:
        reservation = ask(user, ROOMY, prompt=10**9, output=10**6)
        assert reservation.output_limit == 10**6
        assert (reservation.remaining_month, reservation.remaining_day) == (None, None)

    def test_the_output_limit_is_lowered_to_what_is_left(self, user: User) -> None:
        assert ask(user, caps(None, 500), output=1000).output_limit == 500

    def test_the_day_lowers_it_too(self, user: User) -> None:
        assert ask(user, caps(None, None, 400), prompt=100, output=1000).output_limit == 300

    def test_sixteen_left_is_enough_and_fifteen_is_none(self, user: User) -> None:
        first = ask(user, caps(None, 116), output=100)
        done(first, prompt=1, output=100)
        assert ask(user, caps(None, 116), output=50).output_limit == 16
        with pytest.raises(MonthlyCapExceeded):
            ask(user, caps(None, 115), output=50)

    def test_a_small_limit_is_granted_where_more_is_left(self, user: User) -> None:
        assert ask(user, caps(None, 500), output=3).output_limit == 3

    def test_input_beyond_the_cap_is_refused_with_the_numbers(self, user: User) -> None:
        done(ask(user, caps(1000, None), prompt=900), prompt=900, output=1)
        with pytest.raises(MonthlyCapExceeded) as refusal:
            ask(user, caps(1000, None), prompt=101)
        problem = refusal.value
        assert problem.members == {
            "retry_after_iso": "2026-12-01T00:00:00Z",
            "cap": 1000,
            "used": 900,
            "reserved": 0,
            "requested": 101,
            "remaining": 100,
            "dimension": "input",
        }
        assert problem.headers["x-should-retry"] == "false"
        assert problem.headers["Retry-After"] == str(int(10.5 * 86_400))

    def test_the_day_is_refused_until_midnight(self, user: User) -> None:
        done(ask(user, caps(None, None, 1000), output=900), prompt=50, output=900)
        with pytest.raises(DailyLimitReached) as refusal:
            ask(user, caps(None, None, 1000), prompt=100)
        assert refusal.value.members["retry_after_iso"] == "2026-11-21T00:00:00Z"
        assert "dimension" not in refusal.value.members

    def test_a_call_that_is_too_large_for_the_rest_is_not_told_that_all_is_used_up(
        self, user: User
    ) -> None:
        day = caps(None, None, 100_000)
        done(ask(user, day, prompt=40_000, output=7_445), prompt=40_000, output=7_445)
        with pytest.raises(DailyLimitReached) as refusal:
            ask(user, day, prompt=60_000)
        problem = refusal.value
        assert problem.detail == (
            "This call may need 60,016 tokens, and 52,555 of today's tokens are left. "
            "A shorter one may still fit."
        )
        assert (problem.members["requested"], problem.members["remaining"]) == (60_016, 52_555)
        assert problem.headers["X-Tokens-Remaining-Day"] == "52555"
        assert ask(user, day, prompt=1_000).output_limit == 1_000

    def test_a_call_too_large_for_the_rest_of_the_month_is_not_waited_for_either(
        self, user: User
    ) -> None:
        month = caps(1_000, None)
        done(ask(user, month, prompt=400), prompt=400, output=1)
        held = ask(user, month, prompt=100)
        with pytest.raises(MonthlyCapExceeded) as refusal:
            ask(user, month, prompt=700)
        problem = refusal.value
        assert problem.detail == (
            "This call may need 700 tokens, and 500 of this month's input tokens are left. "
            "A shorter one may still fit."
        )
        assert (problem.members["requested"], problem.members["remaining"]) == (700, 500)
        assert problem.headers["X-Tokens-Remaining-Month"] == "500"
        done(held, prompt=100, output=1)

    def test_a_cap_that_is_used_up_is_called_so(self, user: User) -> None:
        month = caps(None, 1_000)
        done(ask(user, month, output=990), prompt=1, output=990)
        with pytest.raises(MonthlyCapExceeded, check=_says("This month's tokens are used up.")):
            ask(user, month)
        day = caps(None, None, 1_000)
        with pytest.raises(DailyLimitReached, check=_says("Today's tokens are used up.")):
            ask(user, day)

    def test_a_call_of_a_few_tokens_is_refused_like_any_other(self, user: User) -> None:
        month = caps(None, 1_000)
        done(ask(user, month, output=995), prompt=1, output=995)
        with pytest.raises(MonthlyCapExceeded):
            ask(user, month, output=5)

    def test_a_call_that_no_period_has_room_for_is_called_so(self, user: User) -> None:
        with pytest.raises(DailyLimitReached, check=_says("more than the whole limit of 1,000.")):
            ask(user, caps(None, None, 1_000), prompt=1_000)

    def test_tokens_that_only_running_calls_hold_are_worth_waiting_for(self, user: User) -> None:
        running = ask(user, caps(None, 1000), output=1000)
        with pytest.raises(CapReserved) as refusal:
            ask(user, caps(None, 1000))
        assert refusal.value.headers["Retry-After"] == "5"
        assert refusal.value.headers["X-Tokens-Remaining-Month"] == "0"
        members = refusal.value.members
        assert (members["requested"], members["remaining"]) == (16, 0)
        done(running, prompt=10, output=10)
        assert ask(user, caps(None, 1000)).output_limit == 990

    def test_a_refused_call_costs_nothing(self, user: User) -> None:
        ask(user, caps(100, None), prompt=100)
        before = MonthlyUsage.objects.values().get()
        with pytest.raises(CapReserved):
            ask(user, caps(100, None), prompt=1)
        assert MonthlyUsage.objects.values().get() == before
        assert UsageRecord.objects.count() == 1


@pytest.mark.django_db
class TestPeriods:
    def test_the_first_call_of_a_month_asks_little_more_than_any_other(
        self, user: User, django_assert_num_queries: Any
    ) -> None:
        # That finds no month, what is missing, its row, and that it has room.
        with django_assert_num_queries(4):
            ask(user, ROOMY)
        with django_assert_num_queries(1):
            ask(user, ROOMY)
        with django_assert_num_queries(4):
            ask(user, ROOMY, now=NOON + timedelta(days=30))

    def test_a_refusal_costs_hardly_more_than_an_admission(
        self, user: User, django_assert_num_queries: Any
    ) -> None:
        done(ask(user, ROOMY), prompt=500, output=500)
        for plan in (caps(500), caps(None, 500), caps(daily=500)):
            with pytest.raises((MonthlyCapExceeded, DailyLimitReached)):
                ask(user, plan)
            # The alert of the daily limit is there by now, and is looked for.
            with (
                django_assert_num_queries(2 if plan.daily is None else 3),
                pytest.raises((MonthlyCapExceeded, DailyLimitReached)),
            ):
                ask(user, plan)

    def test_a_new_day_starts_at_zero_and_keeps_the_month(self, user: User) -> None:
        done(ask(user, caps(None, 5000, 1000), output=900), prompt=50, output=900)
        tomorrow = NOON + timedelta(days=1)
        assert ask(user, caps(None, 5000, 1000), output=900, now=tomorrow).output_limit == 900
        month = MonthlyUsage.objects.get()
        assert (month.day, month.day_used, month.output_used) == (tomorrow.date(), 0, 900)
        assert_totals_are_the_ledger(user)

    def test_yesterdays_call_settles_into_the_month_alone(self, user: User) -> None:
        running = ask(user, ROOMY, prompt=10, output=20)
        ask(user, ROOMY, prompt=1, output=2, now=NOON + timedelta(days=1))
        done(running, prompt=5, output=6)
        month = MonthlyUsage.objects.get()
        assert (month.day_used, month.day_reserved) == (0, 3)
        assert_totals_are_the_ledger(user)

    def test_last_months_call_settles_into_last_month(self, user: User) -> None:
        running = ask(user, ROOMY, now=datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC))
        ask(user, ROOMY, now=datetime(2026, 12, 1, tzinfo=UTC))
        done(running, prompt=5, output=6)
        november, december = MonthlyUsage.objects.order_by("period")
        assert (november.output_used, december.output_used) == (6, 0)
        assert_totals_are_the_ledger(user)

    def test_a_host_whose_clock_is_behind_counts_into_the_day_that_has_begun(
        self, user: User
    ) -> None:
        ask(user, ROOMY, now=datetime(2026, 11, 21, 0, 0, 0, 1, tzinfo=UTC))
        late = ask(user, ROOMY, now=datetime(2026, 11, 20, 23, 59, 59, tzinfo=UTC))
        assert UsageRecord.objects.get(pk=late.record_id).day.day == 21
        assert_totals_are_the_ledger(user)


@pytest.mark.django_db
class TestEffectiveCaps:
    def test_a_call_of_a_host_a_day_behind_is_refused_by_that_days_limit(self, user: User) -> None:
        done(ask(user, caps(daily=500)), prompt=250, output=249)
        with pytest.raises(DailyLimitReached) as refused:
            ask(user, caps(daily=500), now=NOON - timedelta(days=1))
        assert refused.value.members["used"] == 499

    def test_an_empty_daily_limit_is_twice_a_thirtieth_of_the_month(self, user: User) -> None:
        assert balance(user_id=user.pk, plan=caps(500_000, 100_000), now=NOON).day_cap == 40_000

    @pytest.mark.parametrize("numbers_of_plan", [caps(None, 100), caps(100, None), ROOMY])
    def test_there_is_no_daily_limit_where_a_monthly_cap_is_empty(
        self, user: User, numbers_of_plan: PlanCaps
    ) -> None:
        assert balance(user_id=user.pk, plan=numbers_of_plan, now=NOON).day_cap is None

    def test_an_override_counts_until_its_end(self, user: User) -> None:
        Override.objects.create(
            user=user,
            monthly_output_tokens=50,
            starts_at=NOON,
            ends_at=NOON + timedelta(days=1),
            reason="test",
        )
        plan = caps(1000, 1000, 100)
        assert balance(user_id=user.pk, plan=plan, now=NOON)[1:4] == (1000, 50, 100)
        later = NOON + timedelta(days=1)
        assert balance(user_id=user.pk, plan=plan, now=later)[1:4] == (1000, 1000, 100)
        assert ask(user, plan, prompt=1, output=99).output_limit == 50


@pytest.mark.django_db
class TestSettling:
    def test_a_record_settles_once(self, user: User) -> None:
        reservation = ask(user, ROOMY)
        assert done(reservation, prompt=10, output=20)
        assert not done(reservation, prompt=1000, output=2000)
        record = UsageRecord.objects.get()
        assert (record.input_tokens, record.output_tokens) == (10, 20)
        assert_totals_are_the_ledger(user)

    def test_a_call_that_died_is_settled_when_its_reservation_expires(self, user: User) -> None:
        reservation = ask(user, ROOMY, prompt=10, output=20)
        assert settle_abandoned(now=NOON + timedelta(seconds=659)) == 0
        assert settle_abandoned(now=NOON + timedelta(seconds=660)) == 1
        record = UsageRecord.objects.get(pk=reservation.record_id)
        assert (record.end, record.source) == ("crashed", "estimated")
        assert (record.input_tokens, record.output_tokens) == (10, 20)
        assert settle_abandoned(now=NOON + timedelta(days=1)) == 0
        assert_totals_are_the_ledger(user)


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_the_first_calls_of_a_month_do_not_pass_the_cap(self, user: User) -> None:
        results = race(*[lambda: ask(user, caps(None, 1000), output=100)] * 16)
        granted = [each.output_limit for each in results if isinstance(each, Reservation)]
        assert granted == [100] * 10
        assert {type(each) for each in results} == {Reservation, CapReserved}
        assert_totals_are_the_ledger(user)

    @transaction.atomic
    def test_an_admission_is_prepared_once_whatever_its_numbers(self, user: User) -> None:
        """Each preparation is kept in every connection, and takes as long as a dozen admissions."""
        prepared = []
        for number in (1, 1, 10**5, 10**10):
            assert ask_ledger(
                user_id=user.pk,
                client_id=user.client_id,
                session_id=uuid4(),
                model="m",
                provider="p",
                request_id=f"request-{next(numbers)}",
                streamed=False,
                input_estimate=100,
                output_wanted=100,
                counted_input=min(number, 10**6),
                prices=Prices(number, number, number),
                plan=caps(number + 10**4, None, number + 10**4),
                now=NOON,
            )
            with connection.cursor() as cursor:
                # The pattern is no part of the text, which is prepared too.
                cursor.execute(
                    "SELECT name FROM pg_prepared_statements WHERE statement LIKE %s",
                    ["%admitted AS (%"],
                )
                prepared.append(sorted(cursor.fetchall()))
        # In a transaction, which has one connection, from the second time on.
        assert prepared[1]
        assert prepared[1:] == [prepared[1]] * 3

    def test_a_month_begins_for_many_at_the_same_time(self, user: User) -> None:
        people = [user] + [
            User.objects.create_user(f"{number}@acme.test", client=user.client)
            for number in range(5)
        ]
        results = race(*[partial(ask, person, ROOMY) for person in people for _ in range(4)])
        assert {type(each) for each in results} == {Reservation}
        assert MonthlyUsage.objects.count() == len(people)
        for person in people:
            assert_totals_are_the_ledger(person)

    def test_settling_twice_at_once_counts_once(self, user: User) -> None:
        reservation = ask(user, ROOMY)
        results = race(*[lambda: done(reservation, prompt=7, output=9)] * 8)
        assert sorted(results) == [False] * 7 + [True]
        assert_totals_are_the_ledger(user)

    def test_two_sweeps_at_once_settle_each_record_once(self, user: User) -> None:
        for _ in range(20):
            ask(user, ROOMY, prompt=1, output=1)
        later = NOON + timedelta(hours=1)
        results = race(*[lambda: settle_abandoned(now=later)] * 2)
        assert sum(results) == 20
        assert_totals_are_the_ledger(user)

    def test_calls_that_reserve_and_settle_at_once_keep_the_sums(self, user: User) -> None:
        def call() -> None:
            for _ in range(20):
                try:
                    reservation = ask(user, caps(None, 5_000, 50_000), prompt=10, output=400)
                except (CapReserved, MonthlyCapExceeded):
                    continue
                done(reservation, prompt=9, output=min(30, reservation.output_limit))

        results = race(*[call] * 12)
        assert results == [None] * 12
        assert_totals_are_the_ledger(user)
        assert MonthlyUsage.objects.get().output_used <= 5_000
