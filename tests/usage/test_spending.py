"""Spending: sums of the ledger for any of its calls, rankings, and what a month will come to."""

from collections import Counter
from datetime import date, timedelta
from typing import Any

import pytest

from accounts.models import Client, User
from config.platform.periods import Period
from tests.usage.test_budgets import NOON, NOVEMBER
from tests.usage.test_daily import people, use
from usage.models import UsageRecord
from usage.spending.daily import count_days
from usage.spending.sums import Scope, Sums, forecast, spread, total

__all__ = ["people"]
UNTIL = date(2026, 11, 30)
KEY = "018f2d6e-0000-7000-8000-000000000001"


@pytest.mark.django_db
class TestSpending:
    @pytest.fixture(autouse=True)
    def _used(self, people: list[User]) -> None:
        use(people, calls=40)
        UsageRecord.objects.filter(user=people[0]).update(key_id=KEY, labels={"user": "batch"})
        UsageRecord.objects.update(abandoned=None)
        count_days(now=NOON)

    @pytest.mark.parametrize("name", ["client_id", "user_id", "model", "provider", "key_id"])
    def test_spending_of_some_calls_is_their_sum(self, name: str) -> None:
        value = getattr(UsageRecord.objects.filter(key_id=KEY)[0], name)
        calls = UsageRecord.objects.filter(**{name: value})
        found = Scope(**{name: value}).by_day(NOVEMBER, UNTIL)
        assert {day: sums.calls for day, sums in found.items()} == Counter(c.day for c in calls)
        assert total(found.values()) == Sums(
            len(calls),
            sum(c.end in {"provider_failed", "timeout", "crashed"} for c in calls),
            sum(c.end == "client_gone" for c in calls),
            sum(c.input_tokens for c in calls),
            sum(c.cached_input_tokens for c in calls),
            sum(c.output_tokens for c in calls),
            sum(c.cost or 0 for c in calls),
            sum(c.cost is None for c in calls),
        )
        assert Scope(**{name: value}).by_month(NOVEMBER, UNTIL) == {NOVEMBER: total(found.values())}

    @pytest.mark.parametrize("group", ["client", "person", "model", "provider", "key", "label"])
    def test_is_ranked_by_cost(self, group: str) -> None:
        ranked = Scope().ranking(group, NOVEMBER, UNTIL, most=50)
        assert [sums.cost for _, sums in ranked] == sorted(
            (s.cost for _, s in ranked), reverse=True
        )
        names = {
            "client": lambda call: call.client_id,
            "person": lambda call: call.user_id,
            "key": lambda call: call.key_id,
            "label": lambda call: (call.labels or {}).get("user"),
        }
        name = names.get(group, lambda call: getattr(call, group))
        calls = Counter(name(call) for call in UsageRecord.objects.all())
        calls.pop(None, None)
        assert {each: sums.calls for each, sums in ranked} == calls
        assert Scope().ranking(group, NOVEMBER, UNTIL, most=1) == ranked[:1]

    def test_spending_of_a_group_is_known_by_day(
        self, people: list[User], organisation: Client
    ) -> None:
        found = Scope().costs_of("person", [people[1].pk], NOVEMBER, UNTIL)
        days = Scope(user_id=people[1].pk).by_day(NOVEMBER, UNTIL)
        assert found == {people[1].pk: {day: sums.cost for day, sums in days.items()}}


def test_nothing_comes_to_nothing() -> None:
    assert total([]) == Sums()


class TestAForecast:
    # A Monday.
    today = date(2026, 11, 23)

    def expected(self, known: dict[date, int]) -> dict[date, int]:
        return forecast(known, Period(NOVEMBER, self.today))

    def test_is_the_median_of_a_weekday_in_four_weeks(self) -> None:
        mondays = [self.today - timedelta(weeks=weeks) for weeks in (1, 2, 3, 4, 5)]
        found = self.expected(dict(zip(mondays, (10, 900, 20, 30, 5_000), strict=True)))
        assert found[self.today] == found[date(2026, 11, 30)] == 25
        assert found[date(2026, 11, 24)] == 0

    def test_a_forecast_of_today_is_the_rest_of_the_day(self) -> None:
        week_ago = self.today - timedelta(weeks=1)
        assert self.expected({week_ago: 30, self.today: 10})[self.today] == 20
        assert self.expected({week_ago: 30, self.today: 70})[self.today] == 0

    def test_does_not_count_days_before_the_first_use(self) -> None:
        friday = date(2026, 11, 20)
        assert self.expected({friday: 50})[date(2026, 11, 27)] == 50

    def test_is_off_by_how_much_weekdays_differ(self) -> None:
        period = Period(NOVEMBER, self.today)
        even = {self.today - timedelta(days=back): 10 for back in range(1, 29)}
        assert spread(even, period) == 0
        # Two Mondays are still to come, of variance 25 each.
        mondays = {self.today - timedelta(weeks=1): 20, self.today - timedelta(weeks=2): 20}
        assert spread({**even, **mondays}, period) == 7

    def test_a_forecast_of_a_new_client_is_nothing(self) -> None:
        found: Any = self.expected({})
        assert len(found) == 8
        assert set(found.values()) == {0}
