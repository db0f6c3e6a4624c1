"""Latency and errors: what the worker counts of each hour, and the page that shows it."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import floor, log
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import User
from config.platform.periods import Period
from tests.conftest import Browser
from tests.console.test_roles import operator_with
from usage.latency.buckets import GROWTH, percentile
from usage.latency.hours import STEP, count_hours
from usage.latency.summaries import grouped, rows_between, whole_of
from usage.models import HourLatency, UsageRecord
from usage.tasks import count_latency

pytestmark = pytest.mark.django_db
PAGE = "/admin/latency/"
NOON = datetime(2026, 11, 20, 12, 10, tzinfo=UTC)
Make = Callable[..., UsageRecord]


@pytest.fixture
def make(user: User) -> Make:
    """Makes a settled stream, a moment ago: 200 tokens, the first after 1 s, the last after 5 s."""

    def make(at: datetime, **changed: Any) -> UsageRecord:
        period = Period.of(at)
        first, whole = changed.pop("first", 1.0), changed.pop("whole", 5.0)
        ended = at + timedelta(seconds=whole)
        values = {
            "user": user,
            "client_id": user.client_id,
            "period": period.month,
            "day": period.day,
            "model": "small",
            "provider": "first",
            "streamed": True,
            "state": "settled",
            "end": "done",
            "source": "provider",
            "reserved_input": 1,
            "reserved_output": 1,
            "output_tokens": 200,
            "opened_at": at,
            "expires_at": at + timedelta(minutes=11),
            "first_output_at": None if first is None else at + timedelta(seconds=first),
            "settled_at": ended,
        }
        if changed.get("state") == "open":
            values["source"] = ""
        return UsageRecord.objects.create(**{**values, **changed})

    return make


def seen(since: datetime, until: datetime) -> Any:
    return whole_of(rows_between(since, until))


def hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


class TestPercentiles:
    @pytest.mark.parametrize("number", [1, 2, 20, 5_000])
    @pytest.mark.parametrize("share", [0.5, 0.95])
    def test_a_percentile_is_within_three_percent(self, number: int, share: float) -> None:
        times = sorted(Random(number).lognormvariate(7, 1) for _ in range(number))
        buckets = Counter(floor(log(each) / log(GROWTH)) for each in times)
        exact = times[min(number - 1, int(share * number - 1e-9))]
        found = percentile(buckets, share)
        assert found is not None
        assert abs(found - exact) <= 0.051 * exact

    def test_nothing_has_no_percentile(self) -> None:
        assert percentile({}, 0.5) is None


class TestCounting:
    def test_an_hour_has_its_calls_errors_times_and_tokens(self, make: Make) -> None:
        for _ in range(9):
            make(NOON)
        make(NOON, end="client_gone", whole=900.0)
        make(NOON, end="timeout", whole=600.0)
        make(NOON, streamed=False, first=None, whole=3.0)
        make(NOON, state="open", end="", settled_at=None)
        count_hours(now=NOON)
        summary = seen(hour(NOON), NOON)
        assert (summary.calls, summary.errors) == (12, 1)
        assert summary.first_output(0.5) == pytest.approx(1_000, rel=0.05)
        assert summary.whole_answer(0.95) == pytest.approx(5_000, rel=0.05)
        assert sum(summary.first.values()) == sum(summary.whole.values()) == 10
        # Streams alone have a speed: 200 tokens in the 4 s after the first.
        assert summary.speed == pytest.approx(50)

    def test_a_stream_of_the_release_before_has_its_first_byte(self, make: Make) -> None:
        make(NOON, first=None, first_byte_at=NOON + timedelta(seconds=2))
        count_hours(now=NOON)
        assert seen(hour(NOON), NOON).first_output(0.5) == pytest.approx(2_000, rel=0.05)

    def test_a_failed_attempt_counts_at_its_provider(self, make: Make) -> None:
        attempts = [{"provider": "first"}, {"provider": "third"}, {"provider": "first"}]
        failures = {"attempts": attempts, "left_out": 0, "told": None}
        make(NOON, provider="second", failures=failures)
        count_hours(now=NOON)
        found = grouped(rows_between(hour(NOON), NOON), "provider")
        assert {name: (each.calls, each.failed_attempts) for name, each in found.items()} == {
            "second": (1, 0),
            "first": (0, 2),
            "third": (0, 1),
        }

    def test_counting_again_changes_nothing_and_takes_in_what_has_settled(self, make: Make) -> None:
        call = make(NOON, state="open", end="", settled_at=None)
        make(NOON)
        count_hours(now=NOON)
        count_hours(now=NOON)
        assert seen(hour(NOON), NOON).calls == 1
        UsageRecord.objects.filter(pk=call.pk).update(
            state="settled", end="done", source="provider", settled_at=NOON + timedelta(minutes=9)
        )
        count_hours(now=NOON + timedelta(hours=1))
        assert seen(hour(NOON), NOON).calls == 2

    def test_calls_of_before_an_upgrade_are_counted_some_hours_at_a_time(self, make: Make) -> None:
        ages = [0, 1, *range(20, 30), 100, 9 * 24]
        for age in ages:
            make(NOON - timedelta(hours=age))
        count_hours(now=NOON)
        assert HourLatency.objects.count() == 2 + STEP
        for _ in range(3):
            count_hours(now=NOON)
        counted = {
            (hour(NOON) - row.hour) // timedelta(hours=1) for row in HourLatency.objects.all()
        }
        assert counted == {*ages} - {9 * 24}

    def test_hours_that_no_worker_counted_are_counted_by_the_next(self, make: Make) -> None:
        make(NOON)
        count_hours(now=NOON)
        make(NOON + timedelta(hours=5))
        later = NOON + timedelta(hours=40)
        make(later)
        count_hours(now=later)
        assert seen(hour(NOON), later).calls == 3

    def test_a_call_that_ended_while_no_worker_counted_is_counted_in_its_hour(
        self, make: Make
    ) -> None:
        begun = NOON.replace(minute=0) - timedelta(minutes=2)
        make(begun - timedelta(minutes=5))
        make(NOON)
        count_hours(now=NOON)
        # Admitted before the last hour that was counted, and settled after that count.
        make(begun)
        make(NOON + timedelta(hours=8))
        count_hours(now=NOON + timedelta(hours=9))
        assert seen(hour(begun), hour(NOON)).calls == 2

    def test_hours_are_kept_for_eight_days(self, make: Make) -> None:
        make(NOON)
        count_hours(now=NOON)
        count_hours(now=NOON + timedelta(days=9))
        assert not HourLatency.objects.exists()

    def test_one_row_of_an_hour_model_and_provider(self, make: Make) -> None:
        make(timezone.now())
        count_latency(0)
        row = HourLatency.objects.get()
        assert (row.model, row.provider, row.calls) == ("small", "first", 1)
        assert str(row) == f"small {row.hour:%Y-%m-%d %H}"


@pytest.fixture
def used(make: Make) -> datetime:
    """An hour with calls of two models and two providers, one of which is slow and fails."""
    at = hour(timezone.now())
    failures = {"attempts": [{"provider": "first"}], "left_out": 0, "told": None}
    for _ in range(3):
        make(at)
    make(at, model="large", provider="second", whole=40.0, failures=failures)
    make(at, model="large", provider="second", end="provider_failed", whole=2.0)
    count_hours(now=timezone.now())
    return at


def texts(row: Any) -> list[str]:
    return [str(getattr(cell, "text", cell)) for cell in row.cells]


class TestThePage:
    def test_shows_models_with_most_calls_first(self, console: Browser, used: datetime) -> None:
        rows = console.get(PAGE).context["table"].rows
        small, large, of_all = map(texts, rows)
        assert small[:4] == ["small", "3", "0", "0"]
        assert large[:4] == ["large", "2", "1 (50.0 %)", "1"]
        assert large[7].endswith(" s")
        assert of_all[:3] == ["All", "5", "1 (20.0 %)"]

    @pytest.mark.parametrize(
        ("group", "first"),
        [("model", "small"), ("provider", "first"), ("hour", None), ("odd", "small")],
    )
    def test_groups(self, console: Browser, used: datetime, group: str, first: str | None) -> None:
        rows = console.get(PAGE, {"by": group}).context["table"].rows
        assert texts(rows[0])[0] == (first or f"{used:%-d %b %H:%M}")

    @pytest.mark.parametrize("period", ["today", "day", "week", "odd", ""])
    def test_periods(self, console: Browser, used: datetime, period: str) -> None:
        response = console.get(PAGE, {"period": period})
        assert texts(response.context["table"].rows[-1])[1] == "5"
        bars = response.context["chart"].strips[0].bars
        assert sum(bar.value for bar in bars) == 5
        assert len(bars) in {"week": range(145, 169), "today": range(1, 25)}.get(period, [24])

    @pytest.mark.parametrize("group", ["model", "provider", "hour"])
    def test_every_number_leads_to_its_calls(
        self, console: Browser, used: datetime, group: str
    ) -> None:
        response = console.get(PAGE, {"by": group, "period": "today"})
        for row in response.context["table"].rows:
            calls, errors, failed, slow = (row.cells[place] for place in (1, 2, 3, 7))
            if row.href:
                assert number_of(console, row.href) == calls
            for link in (errors, failed):
                if link.href:
                    assert number_of(console, link.href) == int(link.text.partition(" ")[0])
            if slow.href:
                assert "slower" in parse_qs(urlsplit(slow.href).query)
                number_of(console, slow.href)
        bar = next(bar for bar in response.context["chart"].strips[0].bars if bar.href)
        assert number_of(console, bar.href) == 5

    def test_shows_one_model_or_provider(self, console: Browser, used: datetime) -> None:
        response = console.get(PAGE, {"provider": "second", "by": "model"})
        assert [texts(row)[:2] for row in response.context["table"].rows] == [["large", "2"]]
        assert number_of(console, response.context["table"].rows[0].href) == 2
        assert not console.get(PAGE, {"model": "nothing"}).context["table"].rows

    def test_takes_as_many_queries_for_many_rows_as_for_few(
        self, console: Browser, used: datetime, make: Make
    ) -> None:
        def number() -> int:
            with CaptureQueriesContext(connection) as queries:
                assert console.get(PAGE).status_code == 200
            return len(queries)

        few = number()
        for each in range(9):
            make(used, model=f"m{each}")
        count_hours(now=timezone.now())
        assert number() == few <= 10

    @pytest.mark.parametrize("role", ["support", "licensing", "auditor", "owner", "release"])
    def test_is_for_roles_that_see_usage(self, role: str, used: datetime) -> None:
        browser = Browser()
        browser.force_login(operator_with(role))
        assert browser.get(PAGE).status_code == (403 if role == "release" else 200)


def number_of(browser: Browser, address: str) -> int:
    response = browser.get(address)
    assert response.status_code == 200
    return int(response.context["cl"].result_count)
