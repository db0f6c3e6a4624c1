"""A person's view of their month."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import User
from tests.usage.ledger import ask as ask_ledger
from tests.usage.ledger import settle
from usage.costs import Spent
from usage.limits import PlanCaps
from usage.models import UsageRecord
from usage.overrides import Allowance, grant_override
from usage.spending.summaries import summary

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
PLAN = PlanCaps(monthly_input=10_000, monthly_output=2_000, daily=5_000)
ROOMY = PlanCaps(monthly_input=None, monthly_output=None, daily=None)
# Queries for their totals, and for the ledger of one month.
QUERIES_OF_A_SUMMARY = 2


def call(
    user: User,
    *,
    model: str = "small",
    now: datetime = NOON,
    spent: tuple[int, int] | None = (100, 50),
    reserved: tuple[int, int] = (200, 100),
    end: UsageRecord.End = UsageRecord.End.DONE,
) -> None:
    """A call that has spent input and output; None: that runs still."""
    record_id = ask_ledger(
        user_id=user.pk,
        client_id=user.client_id or uuid4(),
        session_id=uuid4(),
        model=model,
        provider="p",
        request_id="",
        streamed=False,
        input_estimate=reserved[0],
        output_wanted=reserved[1],
        plan=ROOMY,
        now=now,
    ).record_id
    if spent is not None:
        settle(
            record_id=record_id,
            user_id=user.pk,
            spent=Spent(input=spent[0], output=spent[1]),
            source=UsageRecord.Source.PROVIDER,
            end=end,
            now=now,
        )


def test_everything_is_left_before_the_first_call(user: User) -> None:
    month = summary(user_id=user.pk, plan=PLAN, now=NOON)
    assert (month.input.used, month.input.in_flight, month.input.remaining) == (0, 0, 10_000)
    assert (month.day.remaining, month.day.resets_at) == (
        5_000,
        datetime(2026, 11, 21, tzinfo=UTC),
    )
    assert (month.calls, month.by_day, month.by_model) == (0, [], [])


def test_a_running_call_is_in_flight_and_not_used(user: User) -> None:
    call(user)
    call(user, spent=None)
    month = summary(user_id=user.pk, plan=PLAN, now=NOON)
    assert (month.input.used, month.input.in_flight, month.input.remaining) == (100, 200, 9_700)
    assert (month.output.used, month.output.in_flight, month.output.remaining) == (50, 100, 1_850)
    assert (month.day.used, month.day.in_flight, month.day.remaining) == (150, 300, 4_550)
    assert month.calls == 2


def test_the_series_are_sums_in_a_stable_order(user: User) -> None:
    earlier = NOON - timedelta(days=2)
    for model, now in (("zeta", earlier), ("zeta", NOON), ("alpha", NOON)):
        call(user, model=model, now=now)
    month = summary(user_id=user.pk, plan=PLAN, now=NOON)
    assert [(each["day"].day, each["input"], each["calls"]) for each in month.by_day] == [
        (18, 100, 1),
        (20, 200, 2),
    ]
    assert [(each["model"], each["output"], each["calls"]) for each in month.by_model] == [
        ("alpha", 50, 1),
        ("zeta", 100, 2),
    ]


def test_abandoned_calls_are_counted_by_day(user: User) -> None:
    earlier = NOON - timedelta(days=2)
    for now, end in (
        (earlier, UsageRecord.End.CLIENT_GONE),
        (NOON, UsageRecord.End.CLIENT_GONE),
        (NOON, UsageRecord.End.CLIENT_GONE),
        (NOON, UsageRecord.End.STOPPED),
        (NOON - timedelta(days=30), UsageRecord.End.CLIENT_GONE),
    ):
        call(user, now=now, end=end)
    call(user, spent=None)
    month = summary(user_id=user.pk, plan=PLAN, now=NOON)
    assert [(each["abandoned"], each["calls"], each["input"]) for each in month.by_day] == [
        (1, 1, 100),
        (2, 4, 300),
    ]
    assert (month.abandoned, month.calls) == (3, 5)


def test_nothing_is_left_where_a_cap_was_lowered_below_what_is_used(user: User, by: Actor) -> None:
    call(user, spent=(3_000, 1_000))
    grant_override(
        user_id=user.pk,
        allowance=Allowance(monthly_output_tokens=10, daily_tokens=0),
        ends_at=NOON + timedelta(days=1),
        reason="x",
        by=by,
        now=NOON,
    )
    month = summary(user_id=user.pk, plan=PLAN, now=NOON)
    assert (month.output.cap, month.output.remaining) == (10, 0)
    assert (month.day.cap, month.day.remaining) == (0, 0)
    after = summary(user_id=user.pk, plan=PLAN, now=NOON + timedelta(days=1))
    assert (after.output.cap, after.output.remaining) == (2_000, 1_000)


def test_a_new_day_and_a_new_month_begin_at_nothing(user: User) -> None:
    last = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
    call(user, now=last)
    call(user, now=last, spent=None)
    assert summary(user_id=user.pk, plan=PLAN, now=last).day.used == 150
    december = summary(user_id=user.pk, plan=PLAN, now=last + timedelta(seconds=1))
    assert december.period.month_start == datetime(2026, 12, 1, tzinfo=UTC)
    assert (december.input.used, december.input.in_flight, december.day.used) == (0, 0, 0)
    assert (december.calls, december.by_day) == (0, [])

    call(user, now=NOON)
    tomorrow = summary(user_id=user.pk, plan=PLAN, now=datetime(2026, 12, 1, 0, tzinfo=UTC))
    assert tomorrow.input.used == 0


def test_nothing_of_others_is_read(user: User) -> None:
    other = User.objects.create_user("bert@acme.test", client=user.client)
    call(other)
    call(other, spent=None)
    month = summary(user_id=user.pk, plan=PLAN, now=NOON)
    assert (month.input.used, month.input.in_flight, month.calls) == (0, 0, 0)


def test_a_summary_takes_as_few_queries_for_many_calls_as_for_one(
    user: User, django_assert_num_queries: Any
) -> None:
    for number in range(12):
        call(user, model=f"model-{number % 4}", now=NOON + timedelta(days=number - 12))
    with django_assert_num_queries(QUERIES_OF_A_SUMMARY):
        summary(user_id=user.pk, plan=PLAN, now=NOON)


def test_the_summary_has_the_promised_shape_over_http(signed_in: APIClient, user: User) -> None:
    now = datetime.now(UTC)
    call(user, now=now)
    call(user, now=now, spent=None)
    response = signed_in.get("/v1/usage/me")
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "private, no-cache"
    body = response.json()
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    assert body["period"]["start"] == f"{first:%Y-%m-%dT%H:%M:%SZ}"
    assert set(body["period"]) == {"start", "resets_at"}
    assert body["input"] == {"used": 100, "in_flight": 200, "cap": 500_000, "remaining": 499_700}
    assert body["output"] == {"used": 50, "in_flight": 100, "cap": 100_000, "remaining": 99_850}
    assert body["day"].pop("resets_at") == f"{now + timedelta(days=1):%Y-%m-%dT00:00:00Z}"
    assert body["day"] == {"used": 150, "in_flight": 300, "cap": 100_000, "remaining": 99_550}
    assert body["calls"] == 2
    day = {"date": f"{now:%Y-%m-%d}", "input": 100, "output": 50, "calls": 2, "abandoned": 0}
    assert body["by_day"] == [day]
    assert body["by_model"] == [{"model": "small", "input": 100, "output": 50, "calls": 2}]
    assert list(body) == ["period", "input", "output", "day", "calls", "by_day", "by_model"]


def test_a_missing_cap_is_null(signed_in: APIClient, user: User) -> None:
    assert user.client is not None
    plan = user.client.licence.plan
    plan.monthly_input_tokens = plan.monthly_output_tokens = plan.daily_tokens = None
    plan.save()
    body = signed_in.get("/v1/usage/me").json()
    for share in (body["input"], body["output"], body["day"]):
        assert (share["cap"], share["remaining"]) == (None, None)


def test_usage_requires_a_sign_in(api: APIClient) -> None:
    assert api.get("/v1/usage/me").status_code == 401
