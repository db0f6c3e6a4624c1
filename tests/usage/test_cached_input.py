"""Input that a provider reads from its cache: it counts by the plan's percent, and costs what it costs."""

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError

from accounts.models import User
from licensing.models import Plan
from tests.usage.ledger import ask as ask_ledger
from tests.usage.ledger import settle
from tests.usage.test_caps import NOON, assert_totals_are_the_ledger
from usage.caps import Reservation, SoFar, checkpoint
from usage.costs import AskedRoute, Prices, Spent
from usage.limits import PlanCaps, balance
from usage.models import UsageRecord
from usage.settlement import After, settle_abandoned
from usage.spending.summaries import summary

pytestmark = pytest.mark.django_db

CODING = PlanCaps(monthly_input=10_000, monthly_output=1_000, daily=20_000, cached_percent=10)
PRICES = Prices(input=3_000_000, cached_input=300_000, output=15_000_000)


def ask(user: User, *, plan: PlanCaps = CODING, prompt: int = 5_000) -> Reservation:
    return ask_ledger(
        user_id=user.pk,
        client_id=user.client_id,
        session_id=uuid4(),
        model="m",
        request_id="",
        streamed=True,
        input_estimate=prompt,
        output_wanted=100,
        prices=PRICES,
        plan=plan,
        now=NOON,
    )


def done(user: User, call: Reservation, *, prompt: int = 4_005, cached: int = 4_001) -> After:
    after = settle(
        record_id=call.record_id,
        user_id=user.pk,
        spent=Spent(input=prompt, cached_input=cached, output=50),
        source=UsageRecord.Source.PROVIDER,
        end=UsageRecord.End.DONE,
        now=NOON,
    )
    assert after is not None
    return after


def test_cached_input_is_reserved_in_full_and_settled_by_its_share(user: User) -> None:
    call = ask(user)
    assert call.remaining_month == 1_000
    held = balance(user_id=user.pk, plan=CODING, now=NOON)
    assert (held.input_reserved, held.day_reserved) == (5_000, 5_100)
    after = done(user, call)
    # 4 of input, 401 of 4,001 from the cache (rounded up), 50 of output.
    assert (after.remaining_month, after.taken_today) == (950, 455)
    found = summary(user_id=user.pk, plan=CODING, now=NOON)
    assert (found.input.used, found.input.remaining) == (405, 9_595)
    assert (found.day.used, found.day.remaining) == (455, 19_545)
    # A person's usage by day and by model is shown in full.
    assert [(each["input"], each["output"]) for each in found.by_day] == [(4_005, 50)]
    assert [each["input"] for each in found.by_model] == [4_005]
    assert_totals_are_the_ledger(user)


def test_the_share_of_cached_input_does_not_change_the_cost(user: User) -> None:
    costs = []
    for percent in (100, 10, 0):
        call = ask(user, plan=replace(CODING, cached_percent=percent))
        done(user, call)
        costs.append(UsageRecord.objects.get(pk=call.record_id).cost)
    assert len({*costs}) == 1


@pytest.mark.parametrize(("percent", "counted"), [(100, None), (99, 3_965), (1, 45), (0, 4)])
def test_the_record_has_what_counts_beside_all_of_it(
    user: User, percent: int, counted: int | None
) -> None:
    call = ask(user, plan=replace(CODING, cached_percent=percent))
    done(user, call)
    record = UsageRecord.objects.get(pk=call.record_id)
    assert (record.input_tokens, record.cached_input_tokens) == (4_005, 4_001)
    assert (record.capped_input, record.cached_input_percent) == (counted, percent)
    assert_totals_are_the_ledger(user)


def test_a_plan_that_changes_leaves_running_calls_as_they_were_admitted(user: User) -> None:
    before, other = ask(user, prompt=1_000), replace(CODING, cached_percent=100)
    after = ask(user, plan=other, prompt=1_000)
    done(user, before)
    done(user, after)
    assert balance(user_id=user.pk, plan=other, now=NOON).input_used == 405 + 4_005
    assert_totals_are_the_ledger(user)


def test_a_call_whose_process_died_counts_by_its_checkpoint(user: User) -> None:
    call = ask(user)
    checkpoint([SoFar(call.record_id, 4_005, 30, NOON, AskedRoute("p", PRICES), cached=4_001)])
    UsageRecord.objects.update(expires_at=NOON)
    assert settle_abandoned(now=NOON + timedelta(hours=1)) == 1
    record = UsageRecord.objects.get(pk=call.record_id)
    assert (record.input_tokens, record.cached_input_tokens) == (4_005, 4_001)
    assert record.capped_input == 405
    assert_totals_are_the_ledger(user)


def test_a_record_that_the_release_before_opens_counts_in_full(user: User) -> None:
    call = ask(user)
    UsageRecord.objects.update(cached_input_percent=100)
    done(user, call)
    assert balance(user_id=user.pk, plan=CODING, now=NOON).input_used == 4_005


@pytest.mark.parametrize("counted", [-1, 4_006])
def test_no_record_counts_more_than_its_input(user: User, counted: int) -> None:
    done(user, ask(user))
    with pytest.raises(IntegrityError):
        UsageRecord.objects.update(capped_input=counted)


@pytest.mark.parametrize("percent", [-1, 101])
def test_no_plan_counts_more_than_all_of_it(plan: Plan, percent: int) -> None:
    plan.cached_input_percent = percent
    with pytest.raises(IntegrityError):
        plan.save()
