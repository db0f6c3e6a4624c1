"""Spending limits: what counts towards them, when they are near and reached, and what ends them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db import IntegrityError, connection, transaction

from accounts.audit import Actor
from accounts.models import AuditEvent, User
from config.composition.attention.listing import alerts, items
from config.platform.money import DOLLAR
from config.platform.problems.problem import InvalidRequest
from tests.races import race
from tests.usage.test_budgets import PRICES, ask, end
from usage.latency.hours import count_hours
from usage.metrics import _share_of_limits
from usage.models import SpendLimit, UsageRecord
from usage.spending.daily import count_days
from usage.spending.spend_limits import (
    excess,
    hold_again,
    let_calls_pass,
    set_spend_limit,
    stopped_until,
    watch,
)
from usage.tasks import count_days as count_days_task

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def bound(
    by: Actor, provider: str = "", *, daily: int | None = None, monthly: int | None = None,
    now: datetime = NOON,
) -> SpendLimit | None:  # fmt: skip
    """Sets a limit in dollars."""
    amounts = {"daily": daily, "monthly": monthly}
    given: Any = {name: each and each * DOLLAR for name, each in amounts.items()}
    return set_spend_limit(provider=provider, reason="Agreed.", by=by, now=now, **given)


def spend(user: User, dollars: float, *, provider: str = "p", now: datetime = NOON) -> UsageRecord:
    call = end(user, ask(user, now=now), now, output=int(dollars * 1_000))
    UsageRecord.objects.filter(pk=call.pk).update(provider=provider)
    return call


def count(now: datetime = NOON) -> None:
    count_days(now=now)
    watch(now=now)


def until(provider: str = "p", *, now: datetime = NOON) -> datetime | None:
    return stopped_until(SpendLimit.objects.all(), provider, now=now)


@pytest.mark.django_db
class TestCounting:
    def test_a_limit_is_reached_once_it_is_spent(self, user: User, by: Actor) -> None:
        bound(by, daily=10)
        spend(user, 9.9)
        count()
        assert until() is None
        spend(user, 0.1)
        count()
        assert until() == MIDNIGHT

    def test_the_worker_counts_it_with_the_days(self, user: User, by: Actor) -> None:
        now = datetime.now(UTC)
        bound(by, daily=1, now=now)
        spend(user, 2, now=now)
        count_days_task(timestamp=0)
        assert SpendLimit.objects.get().day_spent == 2 * DOLLAR

    def test_a_provider_s_limit_is_for_its_calls(self, user: User, by: Actor) -> None:
        bound(by, "first", daily=5)
        spend(user, 6, provider="second")
        count()
        assert until("first") is None
        spend(user, 5, provider="first")
        count()
        assert (until("first"), until("second")) == (MIDNIGHT, None)

    def test_the_limit_of_all_counts_every_provider(self, user: User, by: Actor) -> None:
        bound(by, monthly=10)
        spend(user, 6, provider="second")
        spend(user, 4, provider="first", now=NOON - timedelta(days=10))
        count()
        assert {until("first"), until("second")} == {DECEMBER}

    def test_abandoned_attempts_count_at_their_provider(self, user: User, by: Actor) -> None:
        bound(by, "gone", daily=5)
        left = {
            "provider": "gone", "prices": list(PRICES), "input": 0, "output": 5_000,
            "cost": 5 * DOLLAR, "is_reported": True, "asked_at": "2026-11-20T12:00:00Z",
            "abandoned_at": "2026-11-20T12:00:01Z",
        }  # fmt: skip
        call = spend(user, 1)
        UsageRecord.objects.filter(pk=call.pk).update(abandoned=[left])
        count()
        assert (until("gone"), until("p")) == (MIDNIGHT, None)

    def test_a_new_limit_counts_what_is_spent_already(self, user: User, by: Actor) -> None:
        spend(user, 3)
        count_days(now=NOON)
        bound(by, daily=3)
        assert until() == MIDNIGHT

    def test_a_raised_limit_lets_calls_pass_at_once(self, user: User, by: Actor) -> None:
        bound(by, daily=3)
        spend(user, 3)
        count()
        bound(by, daily=4)
        assert until() is None
        bound(by, daily=2)
        assert until() == MIDNIGHT
        assert bound(by) is None
        assert until() is None

    def test_a_call_counts_on_the_day_of_its_admission(self, user: User, by: Actor) -> None:
        bound(by, daily=3)
        call = ask(user, now=MIDNIGHT - SECOND)
        end(user, call, MIDNIGHT + SECOND, output=3_000)
        count(MIDNIGHT + SECOND)
        assert until(now=MIDNIGHT + SECOND) is None


class TestTime:
    @pytest.mark.django_db
    @pytest.mark.parametrize(
        "instants",
        [
            ("2026-11-20T12:00:00", "2026-11-21", "2026-12-01"),
            ("2027-02-28T23:59:59", "2027-03-01", "2027-03-01"),
            ("2028-02-28T12:00:00", "2028-02-29", "2028-03-01"),
            ("2026-12-31T23:59:59", "2027-01-01", "2027-01-01"),
        ],
    )
    def test_midnight_frees_it_without_a_worker(
        self, user: User, by: Actor, instants: tuple[str, str, str]
    ) -> None:
        at, day_ends, month_ends = (
            datetime.fromisoformat(each).replace(tzinfo=UTC) for each in instants
        )
        bound(by, "day", daily=1, now=at)
        bound(by, "month", monthly=1, now=at)
        for provider in ("day", "month"):
            spend(user, 1, provider=provider, now=at)
        count(at)
        assert (until("day", now=at), until("month", now=at)) == (day_ends, month_ends)
        assert until("day", now=day_ends - SECOND) == day_ends
        assert until("day", now=day_ends) is None
        assert until("month", now=month_ends - SECOND) == month_ends
        assert until("month", now=month_ends) is None

    @pytest.mark.django_db
    def test_a_reached_limit_stays_reached_while_no_worker_runs(
        self, user: User, by: Actor
    ) -> None:
        bound(by, monthly=1)
        spend(user, 1)
        count()
        cache.clear()
        assert until(now=NOON + timedelta(days=8)) == DECEMBER

    @pytest.mark.django_db
    def test_a_worker_of_before_midnight_changes_nothing_after_it(
        self, user: User, by: Actor
    ) -> None:
        bound(by, daily=1)
        spend(user, 1)
        count(MIDNIGHT + SECOND)
        watch(now=MIDNIGHT - SECOND)
        limit = SpendLimit.objects.get()
        assert (limit.day, limit.day_spent) == (MIDNIGHT.date(), 0)
        assert until(now=MIDNIGHT + SECOND) is None

    @pytest.mark.django_db(transaction=True)
    def test_two_workers_count_the_same(self, user: User, by: Actor) -> None:
        bound(by, daily=1)
        spend(user, 1)
        race(count, count)
        assert SpendLimit.objects.get().day_spent == DOLLAR
        assert until() == MIDNIGHT


@pytest.mark.django_db
class TestPassing:
    def test_calls_pass_until_midnight_and_no_longer(self, user: User, by: Actor) -> None:
        limit = bound(by, monthly=1)
        assert limit is not None
        spend(user, 1)
        count()
        let_calls_pass(limit_id=limit.pk, reason="A deadline.", by=by, now=NOON)
        assert until() is None
        count(NOON + timedelta(minutes=1))
        assert until(now=MIDNIGHT - SECOND) is None
        assert until(now=MIDNIGHT) == DECEMBER
        event = AuditEvent.objects.get(action="spend_limit:passed")
        assert (event.after["passes_on"], event.reason) == ("2026-11-20", "A deadline.")

    def test_a_passed_limit_is_enforced_again(self, user: User, by: Actor) -> None:
        limit = bound(by, daily=1)
        assert limit is not None
        spend(user, 1)
        count()
        let_calls_pass(limit_id=limit.pk, reason="x", by=by, now=NOON)
        hold_again(limit_id=limit.pk, reason="x", by=by, now=NOON)
        assert until() == MIDNIGHT

    def test_the_limit_of_all_still_applies(self, user: User, by: Actor) -> None:
        first = bound(by, "p", daily=1)
        bound(by, monthly=1)
        spend(user, 1)
        count()
        assert first is not None
        let_calls_pass(limit_id=first.pk, reason="x", by=by, now=NOON)
        assert until("p") == DECEMBER


@pytest.mark.django_db
class TestRefusedNumbers:
    @pytest.mark.parametrize(
        ("given", "fault"),
        [
            ({"daily": 0, "monthly": None, "reason": "x"}, "/daily"),
            ({"daily": -1, "monthly": None, "reason": "x"}, "/daily"),
            ({"daily": None, "monthly": 10**16, "reason": "x"}, "/monthly"),
            ({"daily": 5, "monthly": None, "reason": " "}, "/reason"),
        ],
    )
    def test_nothing_changes(self, by: Actor, given: dict[str, Any], fault: str) -> None:
        with pytest.raises(InvalidRequest) as refused:
            set_spend_limit(provider="", by=by, now=NOON, **given)
        assert [each.pointer for each in refused.value.errors] == [fault]
        assert not SpendLimit.objects.exists()

    def test_passing_needs_a_reason(self, by: Actor) -> None:
        limit = bound(by, daily=1)
        assert limit is not None
        for act in (let_calls_pass, hold_again):
            with pytest.raises(InvalidRequest):
                act(limit_id=limit.pk, reason="", by=by, now=NOON)


@pytest.mark.django_db
class TestAttention:
    def found(self, now: datetime = NOON) -> list[str]:
        """The items and, among them, nothing that no operator is notified of."""
        shown = {each.name for each in items(now=now) if each.kind.name == "spend"}
        assert shown <= {each.name for each in alerts(now=now)}
        return sorted(each.partition(": ")[2].partition(" ")[2] for each in shown)

    def test_80_and_100_percent_are_alerts_of_their_own_and_end_at_midnight(
        self, user: User, by: Actor
    ) -> None:
        bound(by, daily=10, monthly=100)
        spend(user, 7.9)
        count()
        assert self.found() == []
        spend(user, 0.1)
        count()
        assert self.found() == ["day"]
        spend(user, 80)
        count()
        assert self.found() == ["day reached", "month"]
        assert self.found(MIDNIGHT) == ["month"]
        assert self.found(DECEMBER) == []

    def test_the_metric_is_the_larger_share(self, user: User, by: Actor) -> None:
        bound(by, daily=10, monthly=400)
        bound(by, "first", daily=5)
        spend(user, 1, provider="first", now=NOON - timedelta(days=1))
        spend(user, 9)
        count()
        assert _share_of_limits(NOON) == {"*": 0.9, "first": 0.0}


@pytest.mark.django_db
def test_the_page_says_by_how_much_it_may_be_passed(user: User, by: Actor) -> None:
    spend(user, 6, now=NOON - timedelta(days=2))
    spend(user, 6, now=NOON - timedelta(days=2) + SECOND)
    spend(user, 100, now=NOON - timedelta(days=8))
    spend(user, 5, provider="other")
    running = ask(user)
    count_hours(now=NOON)
    found = excess("", now=NOON)
    assert found.unseen == 14 * DOLLAR
    record = UsageRecord.objects.get(pk=running.record_id)
    assert found.running == (100 * 2_500_000 + record.reserved_output * 1_000 * DOLLAR) // 10**6
    assert excess("other", now=NOON).unseen == 5 * DOLLAR * 7 // 6


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("provider", ["first", ""])
def test_a_limit_by_hand_is_audited(by: Actor, user: User, provider: str) -> None:
    bound(by, provider, daily=5)
    spend(user, 5, provider="first")
    count()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE usage_spendlimit SET daily = 7")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM usage_spendlimit")
    events = AuditEvent.objects.filter(action="spend_limit:changed_by_hand").order_by("id")
    assert [each.target for each in events] == [provider] * 2
    assert events[0].after == {"daily": 7}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("daily", "monthly"), [(None, None), (0, None), (None, 0), (0, 5), (5, 0), (-1, 5)]
)
def test_no_row_by_hand_is_without_an_amount(daily: int | None, monthly: int | None) -> None:
    """Shares are divided by amounts, on the front page and in the metrics."""
    day = NOON.date()
    with pytest.raises(IntegrityError), transaction.atomic():
        SpendLimit.objects.create(
            provider="", daily=daily, monthly=monthly,
            day=day, month=day.replace(day=1), counted_at=NOON,
        )  # fmt: skip
