"""A personal key's own cap: beside its person's, in the same statements, and never passed under concurrency."""

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from django.db.models import Sum

from accounts.models import User
from tests.races import race
from tests.usage.ledger import ask as ask_ledger
from tests.usage.ledger import settle
from usage.caps import Reservation
from usage.costs import Spent
from usage.limits import PlanCaps
from usage.models import KeyMonth, UsageRecord
from usage.refusals import CapReserved, MonthlyCapExceeded
from usage.settlement import After, settle_abandoned

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
PLAN = PlanCaps(monthly_input=None, monthly_output=100_000, daily=None)
KEY = UUID("018f2d6e-0000-7000-8000-000000000001")
numbers = count()


def ask(
    user: User,
    *,
    output: int = 100,
    cap: int | None = 1_000,
    key: UUID | None = KEY,
    plan: PlanCaps = PLAN,
    now: datetime = NOON,
) -> Reservation:
    assert user.client_id is not None
    return ask_ledger(
        user_id=user.pk,
        client_id=user.client_id,
        session_id=None,
        key_id=key,
        key_cap=cap,
        model="m",
        provider="p",
        request_id=f"request-{next(numbers)}",
        streamed=False,
        input_estimate=10,
        output_wanted=output,
        plan=plan,
        now=now,
    )


def done(user: User, reservation: Reservation, *, output: int, now: datetime = NOON) -> Any:
    return settle(
        record_id=reservation.record_id,
        user_id=user.pk,
        spent=Spent(input=10, output=output),
        source=UsageRecord.Source.PROVIDER,
        end=UsageRecord.End.DONE,
        now=now,
        by_capped_key=True,
    )


def assert_totals_are_the_ledger(key: UUID = KEY) -> None:
    """A key's row is the sum of its records, to the token."""
    month = KeyMonth.objects.get(key_id=key)
    records = UsageRecord.objects.filter(key_id=key, period=month.period)
    used = records.filter(state="settled").aggregate(o=Sum("output_tokens", default=0))["o"]
    held = records.open().aggregate(o=Sum("reserved_output", default=0))["o"]
    assert (month.output_used, month.output_reserved) == (used, held)


@pytest.mark.django_db
class TestOwnCap:
    def test_a_call_names_its_key_and_counts_on_both_caps(self, user: User) -> None:
        reservation = ask(user, output=300)
        record = UsageRecord.objects.get(pk=reservation.record_id)
        assert (record.key_id, record.session_id, record.reserved_output) == (KEY, None, 300)
        assert reservation.remaining_month == 1_000, "the key's, which is the scarcer"
        assert_totals_are_the_ledger()
        assert done(user, reservation, output=40) == After(960, 50)
        assert_totals_are_the_ledger()
        assert user.monthly_usage.get().output_used == 40

    def test_the_output_limit_is_lowered_to_what_the_key_has_left(self, user: User) -> None:
        done(user, ask(user, output=900), output=900)
        assert ask(user, output=500).output_limit == 100

    def test_the_persons_cap_binds_where_it_is_the_scarcer(self, user: User) -> None:
        plan = PlanCaps(monthly_input=None, monthly_output=400, daily=None)
        reservation = ask(user, output=700, plan=plan)
        assert (reservation.output_limit, reservation.remaining_month) == (400, 400)

    def test_a_spent_key_is_refused_and_its_person_is_not(self, user: User) -> None:
        done(user, ask(user, output=990), output=990)
        with pytest.raises(MonthlyCapExceeded) as refused:
            ask(user)
        problem = refused.value
        assert "key" in problem.detail
        assert problem.headers["X-Tokens-Remaining-Month"] == "10"
        wanted = {"cap": 1_000, "used": 990, "reserved": 0, "dimension": "output"}
        assert wanted.items() <= problem.members.items()
        assert problem.headers["x-should-retry"] == "false"
        assert ask(user, key=None, cap=None).output_limit == 100
        assert ask(user, key=uuid4()).output_limit == 100, "another key has a cap of its own"

    def test_running_calls_of_the_key_can_hold_what_is_left_of_it(self, user: User) -> None:
        ask(user, output=1_000)
        with pytest.raises(CapReserved):
            ask(user)

    def test_the_cap_resets_with_the_month(self, user: User) -> None:
        done(user, ask(user, output=1_000), output=1_000)
        assert ask(user, now=NOON + timedelta(days=15), output=700).output_limit == 700

    def test_a_key_without_a_cap_has_its_persons_alone(self, user: User) -> None:
        reservation = ask(user, cap=None, output=5_000)
        assert UsageRecord.objects.get(pk=reservation.record_id).key_id == KEY
        assert reservation.remaining_month == 100_000
        assert done(user, reservation, output=7) == After(99_993, 17)
        assert not KeyMonth.objects.exists()

    def test_an_abandoned_call_gives_the_keys_tokens_back(self, user: User) -> None:
        ask(user, output=600)
        assert settle_abandoned(now=NOON + timedelta(hours=1)) == 1
        assert_totals_are_the_ledger()
        assert KeyMonth.objects.get().output_reserved == 0

    def test_settling_twice_counts_once(self, user: User) -> None:
        reservation = ask(user)
        assert done(user, reservation, output=5)
        assert done(user, reservation, output=9) is None
        assert_totals_are_the_ledger()
        assert KeyMonth.objects.get().output_used == 5


@pytest.mark.django_db(transaction=True)
class TestRaces:
    """A transaction of its own keeps each from the batches of this process, as if it were in another."""

    def test_calls_that_wait_for_each_other_do_not_pass_the_keys_cap(self, user: User) -> None:
        done(user, ask(user, output=100), output=100)

        def asked() -> Reservation:
            with transaction.atomic():
                reservation = ask(user, output=100)
                # The others have begun their statements by now, and wait.
                time.sleep(0.02)
                return reservation

        results = race(*[asked] * 16)
        granted = [each for each in results if isinstance(each, Reservation)]
        assert sum(each.output_limit for each in granted) == 900
        assert {type(each) for each in results} == {Reservation, CapReserved}
        assert_totals_are_the_ledger()

    def test_the_first_calls_of_a_month_do_not_pass_the_keys_cap(self, user: User) -> None:
        results = race(*[partial(ask, user, output=100)] * 16)
        granted = [each for each in results if isinstance(each, Reservation)]
        assert sum(each.output_limit for each in granted) == 1_000
        assert {type(each) for each in results} == {Reservation, CapReserved}
        assert_totals_are_the_ledger()

    def test_calls_of_keys_and_sessions_that_reserve_and_settle_at_once_keep_the_sums(
        self, user: User
    ) -> None:
        other = uuid4()
        # The rows of a month are made outside of any transaction, as in a request.
        for key in (KEY, other):
            done(user, ask(user, key=key), output=0)

        def calls(key: UUID | None) -> int:
            spent = 0
            for _ in range(15):
                try:
                    with transaction.atomic():
                        reservation = ask(user, output=200, key=key, cap=1_000 if key else None)
                except (CapReserved, MonthlyCapExceeded):
                    continue
                with transaction.atomic():
                    done(user, reservation, output=min(150, reservation.output_limit))
                spent += min(150, reservation.output_limit)
            return spent

        results = race(*[partial(calls, key) for key in (KEY, other, None) for _ in range(4)])
        assert all(isinstance(each, int) for each in results), [str(each) for each in results]
        for key in (KEY, other):
            assert_totals_are_the_ledger(key)
            assert KeyMonth.objects.get(key_id=key).output_used <= 1_000
        month = user.monthly_usage.get()
        assert (month.output_used, month.output_reserved) == (sum(results), 0)  # type: ignore[arg-type]
