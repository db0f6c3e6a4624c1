"""Daily usage: after each run of the worker it is the ledger, summed up, whatever has happened to the calls."""

import json
from collections import Counter, defaultdict
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.audit import Actor
from accounts.models import Client, User
from accounts.people.erasure import erase_user
from tests.races import race
from tests.usage.of_before import leave_attempt
from tests.usage.test_budgets import DECEMBER, NOON, NOVEMBER, PRICES, ask, end
from usage.costs import UNKNOWN, Abandoned, Prices, Spent, as_json
from usage.models import (
    CountedMonth,
    DailyUsage,
    DayTotal,
    MonthlyUsage,
    MonthTotal,
    UsageRecord,
)
from usage.models.totals import DAILY_SUMS
from usage.settlement import settle_abandoned
from usage.spending import daily
from usage.spending.corrections import lower_charge
from usage.spending.daily import count_days
from usage.spending.statements import Statement

ENDS = ("done", "done", "client_gone", "provider_failed", "timeout", "crashed", "stopped")


def ledger() -> dict[tuple[Any, ...], tuple[int, ...]]:
    """Returns the expected daily usage, row by row."""
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * len(DAILY_SUMS))

    def add(record: UsageRecord, provider: str, *numbers: int) -> None:
        key = (record.day, record.client_id, record.user_id, record.model, provider)
        sums[key] = [before + more for before, more in zip(sums[key], numbers, strict=True)]

    for record in UsageRecord.objects.filter(state="settled"):
        failed = record.end in {"provider_failed", "timeout", "crashed"}
        left = record.end == "client_gone"
        tokens = (record.input_tokens, record.cached_input_tokens, record.output_tokens)
        unknown = record.cost is None
        add(record, record.provider, 1, failed, left, *tokens, record.cost or 0, unknown)
        for attempt in record.abandoned or ():
            add(record, attempt["provider"], 0, 0, 0, 0, 0, 0, attempt["cost"] or 0, 0)
    return {key: tuple(numbers) for key, numbers in sums.items()}


def counted() -> dict[tuple[Any, ...], tuple[int, ...]]:
    """Returns daily usage, whose totals must agree."""
    size = len(DailyUsage.KEY)
    rows = list(DailyUsage.objects.values_list(*DailyUsage.KEY, *DAILY_SUMS))
    days, months = Counter[Any](), Counter[Any]()
    for day, client, user, model, provider, *sums in rows:
        for name, value in zip(DAILY_SUMS, sums, strict=True):
            days[day, model, provider, name] += value
            months[day.replace(day=1), client, user, name] += value
    for table, expected in ((DayTotal, days), (MonthTotal, months)):
        totals = table.objects.all()
        found = {
            (*(getattr(row, part) for part in table.KEY), name): getattr(row, name)
            for row in totals
            for name in DAILY_SUMS
        }
        assert found == expected
    return {row[:size]: row[size:] for row in rows}


def attempts(*providers: str) -> Any:
    spent, prices = Spent(input=900, output=40), Prices(1_000_000, None, 2_000_000)
    known = [Abandoned(each, prices, spent, True, NOON, NOON) for each in providers]
    return json.loads(
        as_json([*known, Abandoned("other", UNKNOWN, spent, False, NOON, NOON)]) or ""
    )


def use(people: list[User], *, calls: int, seed: int = 7) -> None:
    """Calls of several days, models and ends, some without prices, some after others had been tried."""
    chance = Random(seed)
    for _ in range(calls):
        person, at = chance.choice(people), NOON - timedelta(days=chance.randrange(3))
        call = ask(person, prices=chance.choice((PRICES, PRICES, UNKNOWN)), now=at)
        fresh = chance.randrange(5_000)
        end(person, call, at, input=fresh, cached_input=fresh // 3, output=chance.randrange(900))
        UsageRecord.objects.filter(pk=call.record_id).update(
            model=chance.choice(("large", "small")),
            provider=chance.choice(("first", "second")),
            end=chance.choice(ENDS),
            abandoned=chance.choice((None, None, attempts("first"), attempts("second", "second"))),
        )


@pytest.fixture
def people(user: User, organisation: Client) -> list[User]:
    others = [User.objects.create(email=f"p{n}@acme.test", client=organisation) for n in range(3)]
    return [user, *others]


@pytest.mark.django_db
class TestDailyUsage:
    def test_is_the_sum_of_the_ledger(self, people: list[User], organisation: Client) -> None:
        use(people, calls=60)
        first = UsageRecord.objects.earliest("opened_at")
        leave_attempt(first.pk, "third", cost=50, asked_at=NOON, left_at=NOON)
        ask(people[0])
        assert count_days(now=NOON) == 4
        assert counted() == ledger()
        assert sum(row[0] for row in counted().values()) == 60

    def test_daily_usage_of_a_clients_month_is_its_statement(
        self, people: list[User], organisation: Client
    ) -> None:
        use(people, calls=40)
        count_days(now=NOON)
        total = Statement(client_id=organisation.pk, month=NOVEMBER).total()
        sums = [sum(column) for column in zip(*counted().values(), strict=True)]
        calls, _, left, given, cached, output, cost, unpriced = sums
        assert [*total[1:]] == [calls, given, cached, output, cost, left, unpriced]

    def test_is_the_same_when_it_is_counted_twice(self, people: list[User]) -> None:
        use(people, calls=20)
        count_days(now=NOON)
        rows = list(DailyUsage.objects.order_by("pk").values())
        assert count_days(now=NOON) == 0
        CountedMonth.objects.update(version="", from_day=NOVEMBER)
        assert count_days(now=NOON) == 4
        assert list(DailyUsage.objects.order_by("pk").values()) == rows

    def test_follows_calls_that_were_running_over_midnight(self, user: User) -> None:
        late = datetime(2026, 11, 30, 23, 59, tzinfo=UTC)
        call = ask(user, now=late)
        count_days(now=late)
        end(user, ask(user, now=DECEMBER), DECEMBER, output=3)
        count_days(now=DECEMBER)
        end(user, call, DECEMBER + timedelta(minutes=5), input=10, output=20)
        count_days(now=DECEMBER + timedelta(minutes=6))
        assert counted() == ledger()
        assert {day for day, *_ in counted()} == {date(2026, 11, 30), date(2026, 12, 1)}

    def test_follows_a_call_of_yesterday_beside_those_of_today(self, user: User) -> None:
        yesterday = NOON - timedelta(days=1)
        call = ask(user, now=yesterday)
        end(user, ask(user), output=5)
        count_days(now=NOON)
        end(user, call, output=7)
        count_days(now=NOON)
        assert counted() == ledger()
        assert len(counted()) == 2

    def test_follows_the_sweep_of_a_dead_process(self, user: User) -> None:
        ask(user)
        count_days(now=NOON)
        assert counted() == {}
        settle_abandoned(now=NOON + timedelta(days=1))
        count_days(now=NOON + timedelta(days=1))
        assert counted() == ledger()
        assert [row[1] for row in counted().values()] == [1]

    @pytest.mark.parametrize("later", [timedelta(0), timedelta(days=3), timedelta(days=90)])
    def test_follows_a_lowered_charge(self, user: User, by: Actor, later: timedelta) -> None:
        call = end(user, ask(user), input=500, output=50)
        count_days(now=NOON)
        now = NOON + later
        end(user, ask(user, now=now), now, output=1)
        count_days(now=now)
        lower_charge(
            record_id=call.pk, input_tokens=5, output_tokens=0, reason="Refund.", by=by, now=now
        )
        assert counted() != ledger()
        count_days(now=now)
        assert counted() == ledger()

    def test_is_filled_in_steps_from_a_ledger_that_is_older(
        self, people: list[User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use(people, calls=20)
        for months in (2, 9):
            at = NOON - timedelta(days=30 * months)
            for person in people:
                end(person, ask(person, now=at), at, output=9)
        # As the migration leaves it, with what was used since.
        CountedMonth.objects.bulk_create(
            CountedMonth(month=month, version="", from_day=month.period)
            for month in MonthlyUsage.objects.all()
        )
        end(people[0], ask(people[0]), output=2)
        monkeypatch.setattr(daily, "STEP", 2)
        monkeypatch.setattr(daily, "RUN_SECONDS", 0.0)
        assert [count_days(now=NOON) for _ in range(7)] == [2, 2, 2, 2, 2, 2, 0]
        assert counted() == ledger()

    def test_begins_with_what_is_new_while_it_is_filled(
        self, people: list[User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = NOON - timedelta(days=300)
        for person in people:
            end(person, ask(person, now=old), old, output=9)
        CountedMonth.objects.bulk_create(
            CountedMonth(month=month, version="", from_day=month.period)
            for month in MonthlyUsage.objects.all()
        )
        end(people[0], ask(people[0]), output=2)
        monkeypatch.setattr(daily, "STEP", 1)
        monkeypatch.setattr(daily, "RUN_SECONDS", 0.0)
        DailyUsage.objects.create(
            day=NOON.date(), client_id=people[1].client_id, user=people[1], model="x", provider="x"
        )
        count_days(now=NOON)
        assert DailyUsage.objects.filter(user=people[0], day=NOON.date()).exists()

    def test_leaves_out_no_month_in_which_no_worker_ran(
        self, people: list[User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for months in (5, 3, 2, 0):
            at = NOON - timedelta(days=30 * months)
            for person in people:
                end(person, ask(person, now=at), at, output=9)
            if months == 5:
                count_days(now=at)
        monkeypatch.setattr(daily, "STEP", 1)
        monkeypatch.setattr(daily, "RUN_SECONDS", 0.0)
        assert sum(count_days(now=NOON) for _ in range(3 * len(people) + 1)) == 3 * len(people)
        assert counted() == ledger()

    def test_is_whole_after_a_step_that_was_killed(
        self, people: list[User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use(people, calls=20)

        class Killed(BaseException):
            pass

        def kill(*args: Any, **kwargs: Any) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(CountedMonth.objects, "bulk_create", kill)
            with pytest.raises(Killed):
                count_days(now=NOON)
        assert counted() == {}
        count_days(now=NOON)
        assert counted() == ledger()

    def test_an_idle_run_reads_little_and_writes_nothing(self, people: list[User]) -> None:
        use(people, calls=20)
        count_days(now=NOON)
        with CaptureQueriesContext(
            connection,
        ) as ran:
            assert count_days(now=NOON) == 0
        asked = [each["sql"] for each in ran.captured_queries]
        assert not [sql for sql in asked if sql.startswith(("INSERT", "UPDATE", "DELETE"))]
        assert len([sql for sql in asked if sql.startswith("SELECT")]) <= 4

    def test_daily_usage_of_an_erased_person_stays_like_the_ledger(
        self, user: User, by: Actor
    ) -> None:
        end(user, ask(user), output=5)
        count_days(now=NOON)
        erase_user(user_id=user.pk, email=user.email, reason="They asked.", by=by, now=NOON)
        count_days(now=NOON)
        assert counted() == ledger()
        assert len(counted()) == 1


@pytest.mark.django_db(transaction=True)
def test_calls_charges_and_runs_at_the_same_moment_lose_nothing(
    people: list[User], by: Actor
) -> None:
    lowered = [end(person, ask(person), input=900, output=90) for person in people]

    def calls(person: User) -> None:
        for _ in range(15):
            end(person, ask(person), input=100, output=1)

    def lower() -> None:
        for call in lowered:
            lower_charge(
                record_id=call.pk, input_tokens=1, output_tokens=1, reason="x", by=by, now=NOON
            )

    def count() -> None:
        for _ in range(12):
            count_days(now=NOON)

    raced = race(*(lambda person=person: calls(person) for person in people), lower, count, count)
    assert not [each for each in raced if isinstance(each, Exception)]
    count_days(now=NOON)
    assert counted() == ledger()
    assert sum(row[0] for row in counted().values()) == 64
