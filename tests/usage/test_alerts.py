"""Alerts: noticed once by the statement that settles, told once by the worker, and never a storm."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor
from accounts.models import Client, User
from accounts.people.clients import set_alert_email
from accounts.people.erasure import erase_user
from licensing.licences import create_client
from licensing.models import Plan
from tests.races import race
from tests.usage.ledger import ask as ask_ledger
from tests.usage.ledger import settle, settlement
from usage import alerts, tasks
from usage.caps import Reservation
from usage.costs import Spent
from usage.limits import PlanCaps
from usage.models import Alert, UsageRecord
from usage.overrides import Allowance, grant_extra, grant_override
from usage.refusals import DailyLimitReached
from usage.settlement import settle as settle_record
from usage.settlement import settle_abandoned

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOVEMBER = date(2026, 11, 1)
PLAN = PlanCaps(monthly_input=10_000, monthly_output=1_000, daily=10**6)
NO_CAPS = PlanCaps(monthly_input=None, monthly_output=None, daily=None)
numbers = count()


@pytest.fixture
def plan(db: None) -> Plan:
    """The caps of everybody here."""
    return Plan.objects.create(
        name="Small",
        monthly_input_tokens=10_000,
        monthly_output_tokens=1_000,
        daily_tokens=10**6,
    )


@pytest.fixture(autouse=True)
def _operators(settings: Any) -> None:
    settings.OPERATOR_EMAILS = ["ops@shell.test"]
    settings.BASE_URL = "https://shell.test"


def ask(
    user: User,
    *,
    plan: PlanCaps = PLAN,
    prompt: int = 10,
    output: int = 100,
    now: datetime = NOON,
) -> Reservation:
    return ask_ledger(
        user_id=user.pk,
        client_id=user.client_id or uuid4(),
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


def end(
    user: User, record_id: UUID, *, prompt: int = 10, output: int = 0, now: datetime = NOON
) -> bool:
    after = settle(
        record_id=record_id,
        user_id=user.pk,
        spent=Spent(input=prompt, output=output),
        source=UsageRecord.Source.PROVIDER,
        end=UsageRecord.End.DONE,
        now=now,
    )
    return after is not None


def use(user: User, output: int, *, plan: PlanCaps = PLAN, now: datetime = NOON) -> None:
    end(user, ask(user, plan=plan, output=output, now=now).record_id, output=output, now=now)


def mails() -> list[dict[str, str]]:
    """The mails that wait to be sent, in order."""
    jobs = ProcrastinateJob.objects.filter(task_name="mail.send").order_by("id")
    return list(jobs.values_list("args", flat=True))


def kinds(user: User | None = None) -> list[str]:
    rows = Alert.objects.order_by("pk")
    return list((rows.filter(user=user) if user else rows).values_list("kind", flat=True))


def erase(user: User, by: Actor) -> None:
    erase_user(user_id=user.pk, email=user.email, reason="They asked.", by=by, now=NOON)


def people(number: int, plan: Plan, by: Actor) -> list[User]:
    client = create_client(name="Many", plan=plan, by=by, now=NOON)
    return [User.objects.create(email=f"p{n:03}@many.test", client=client) for n in range(number)]


@pytest.mark.django_db
class TestNoticing:
    def test_eighty_percent_is_noticed_and_less_is_not(self, user: User) -> None:
        use(user, 799)
        assert kinds() == []
        use(user, 16)
        alert = Alert.objects.get()
        assert (alert.kind, alert.user, alert.period) == ("output", user, NOVEMBER)
        assert (alert.used, alert.cap, alert.noticed_at, alert.told_at) == (815, 1_000, NOON, None)

    def test_an_alert_is_raised_once_a_month(self, user: User, by: Actor) -> None:
        use(user, 850)
        use(user, 20)
        more = Allowance(monthly_output_tokens=1_000)
        grant_extra(
            user_id=user.pk,
            allowance=more,
            ends_at=NOON + timedelta(days=5),
            reason="x",
            by=by,
            now=NOON,
        )
        use(user, 800)
        assert kinds() == ["output"]

    def test_each_dimension_and_each_month_has_its_own(self, user: User) -> None:
        end(user, ask(user).record_id, prompt=8_000, output=900)
        assert sorted(kinds()) == ["input", "output"]
        end(user, ask(user, now=NOON + timedelta(days=20)).record_id, output=900)
        assert sorted(kinds()) == ["input", "output", "output"]

    def test_a_cap_is_used_up_where_no_call_fits_into_the_rest(self, user: User) -> None:
        use(user, 984)
        assert kinds() == ["output"]
        use(user, 16)
        assert kinds() == ["output", "output_all"]
        alert = Alert.objects.get(kind="output_all")
        assert (alert.period, alert.used, alert.cap) == (NOVEMBER, 1_000, 1_000)

    def test_input_is_used_up_where_not_even_a_small_prompt_fits(self, user: User) -> None:
        plan = PlanCaps(monthly_input=10_000, monthly_output=None, daily=None)
        end(user, ask(user, plan=plan, prompt=9_900).record_id, prompt=9_900)
        assert kinds() == ["input"]
        end(user, ask(user, plan=plan, prompt=1).record_id, prompt=1)
        assert kinds() == ["input", "input_all"]

    def test_reserved_tokens_are_not_used(self, user: User) -> None:
        end(user, ask(user, output=900).record_id, output=100)
        assert kinds() == []

    @pytest.mark.parametrize("cap", [None, 0])
    def test_no_share_is_told_where_there_is_no_budget(self, user: User, cap: int | None) -> None:
        none = PlanCaps(monthly_input=None, monthly_output=None, daily=None)
        running = ask(user, plan=none)
        if cap == 0:
            with connection.cursor() as cursor:
                cursor.execute("UPDATE usage_monthlyusage SET output_cap = 0, input_cap = 0")
        end(user, running.record_id, prompt=10**6, output=10**6)
        assert kinds() == []

    def test_the_cap_of_the_latest_admission_counts(self, user: User, by: Actor) -> None:
        use(user, 500)
        lower = Allowance(monthly_output_tokens=600)
        later = NOON + timedelta(days=5)
        grant_override(user_id=user.pk, allowance=lower, ends_at=later, reason="x", by=by, now=NOON)
        use(user, 16)
        assert list(Alert.objects.values_list("used", "cap")) == [(516, 600)]

    def test_a_higher_cap_is_another_share(self, user: User, by: Actor) -> None:
        higher = Allowance(monthly_output_tokens=2_000)
        later = NOON + timedelta(days=5)
        grant_override(
            user_id=user.pk, allowance=higher, ends_at=later, reason="x", by=by, now=NOON
        )
        use(user, 900)
        assert kinds() == []

    def test_a_call_that_died_is_noticed_when_it_is_settled(self, user: User) -> None:
        ask(user, output=900)
        assert settle_abandoned(now=NOON + timedelta(hours=1)) == 1
        assert kinds() == ["output"]

    def test_settling_takes_one_statement(self, user: User, django_assert_num_queries: Any) -> None:
        running = ask(user, output=900)
        settled = settlement(
            record_id=running.record_id,
            user_id=user.pk,
            spent=Spent(input=10, output=900),
            source=UsageRecord.Source.PROVIDER,
            end=UsageRecord.End.DONE,
        )
        with django_assert_num_queries(1):
            settle_record(settled, now=NOON)
        assert kinds() == ["output"]

    def test_a_settlement_that_is_rolled_back_notices_nothing(self, user: User) -> None:
        running = ask(user, output=900)
        assert end(user, running.record_id, output=900)
        assert not end(user, running.record_id, output=950)
        assert Alert.objects.get().used == 900

    def test_the_daily_limit_is_noticed_once_a_day(self, user: User) -> None:
        daily = PlanCaps(monthly_input=None, monthly_output=None, daily=500)
        use(user, 480, plan=daily)
        for _ in range(3):
            with pytest.raises(DailyLimitReached):
                ask(user, plan=daily)
        alert = Alert.objects.get()
        assert (alert.kind, alert.period, alert.used, alert.cap) == ("day", NOON.date(), 490, 500)
        tomorrow = NOON + timedelta(days=1)
        use(user, 480, plan=daily, now=tomorrow)
        with pytest.raises(DailyLimitReached):
            ask(user, plan=daily, now=tomorrow)
        assert kinds() == ["day", "day"]

    def test_one_call_too_large_for_the_rest_does_not_use_up_the_days_alert(
        self, user: User
    ) -> None:
        daily = PlanCaps(monthly_input=None, monthly_output=None, daily=100_000)
        use(user, 47_435, plan=daily)
        with pytest.raises(DailyLimitReached):
            ask(user, plan=daily, prompt=60_000)
        assert kinds() == []
        use(user, 52_000, plan=daily)
        with pytest.raises(DailyLimitReached):
            ask(user, plan=daily, prompt=2_000)
        alert = Alert.objects.get()
        assert (alert.kind, alert.used, alert.cap) == ("day", 99_455, 100_000)

    @pytest.mark.parametrize(("used", "noticed"), [(98_984, []), (98_985, ["day"])])
    def test_the_limit_is_reached_where_no_small_call_fits(
        self, user: User, used: int, noticed: list[str]
    ) -> None:
        daily = PlanCaps(monthly_input=None, monthly_output=None, daily=100_000)
        use(user, used - 10, plan=daily)
        with pytest.raises(DailyLimitReached):
            ask(user, plan=daily, prompt=2_000)
        assert kinds() == noticed

    def test_a_limit_that_stops_somebody_is_reached_by_nobody(self, user: User) -> None:
        daily = PlanCaps(monthly_input=None, monthly_output=None, daily=1_000)
        use(user, 500, plan=daily)
        with pytest.raises(DailyLimitReached):
            ask(user, plan=PlanCaps(monthly_input=None, monthly_output=None, daily=0))
        assert kinds() == []

    def test_a_single_call_that_no_day_has_room_for_is_no_runaway(self, user: User) -> None:
        with pytest.raises(DailyLimitReached):
            ask(user, plan=PlanCaps(monthly_input=None, monthly_output=None, daily=20))
        assert kinds() == []


@pytest.fixture
def _queue(transactional_db: None) -> Iterator[None]:
    """The queue's tables are not Django's, so they are not emptied with the others."""
    empty = "TRUNCATE procrastinate_jobs CASCADE"
    with connection.cursor() as cursor:
        cursor.execute(empty)
    yield
    with connection.cursor() as cursor:
        cursor.execute(empty)


@pytest.mark.usefixtures("_queue")
@pytest.mark.django_db(transaction=True)
def test_two_hundred_calls_that_cross_at_once_are_noticed_once(user: User) -> None:
    caps = PlanCaps(monthly_input=None, monthly_output=200 * 16, daily=None)
    running = [ask(user, plan=caps, output=16) for _ in range(200)]
    parts = [running[n::10] for n in range(10)]

    def settle_all(mine: list[Reservation]) -> int:
        return sum(end(user, each.record_id, output=16) for each in mine)

    done = race(*[partial(settle_all, mine) for mine in parts])
    assert sum(done) == 200  # type: ignore[arg-type]
    # 80 % and all of it, which are one mail.
    assert sorted(kinds()) == ["output", "output_all"]
    told = race(*[lambda: alerts.mail_waiting(now=NOON) for _ in range(4)])
    assert sum(told) == 2  # type: ignore[arg-type]
    assert Alert.objects.waiting().count() == 0
    assert len([each for each in mails() if user.email in each["subject"]]) == 1


@pytest.mark.django_db
class TestAbandoned:
    def leave(
        self, user: User, number: int, *, now: datetime = NOON, end: str = "client_gone"
    ) -> None:
        for _ in range(number):
            reservation = ask(user, plan=NO_CAPS, now=now)
            UsageRecord.objects.filter(pk=reservation.record_id).update(
                state="settled", settled_at=now, source="counted", end=end
            )

    def test_more_than_twenty_in_an_hour_are_noticed_once_a_day(self, user: User) -> None:
        self.leave(user, 20)
        self.leave(user, 5, end="done")
        self.leave(user, 5, now=NOON - timedelta(hours=1))
        alerts.notice_unusual(now=NOON)
        assert kinds() == []
        self.leave(user, 1)
        for minute in range(3):
            alerts.notice_unusual(now=NOON + timedelta(minutes=minute))
        alert = Alert.objects.get()
        assert (alert.kind, alert.user, alert.period) == ("abandoned", user, NOON.date())
        assert (alert.used, alert.cap, alert.told_at) == (21, 20, None)
        tomorrow = NOON + timedelta(days=1)
        self.leave(user, 30, now=tomorrow)
        alerts.notice_unusual(now=tomorrow)
        assert kinds() == ["abandoned"] * 2

    def test_an_hour_that_crosses_midnight_is_one_alert(self, user: User) -> None:
        evening = NOON + timedelta(hours=11, minutes=30)
        self.leave(user, 21, now=evening)
        for minute in (0, 29, 31):
            alerts.notice_unusual(now=evening + timedelta(minutes=minute))
        assert kinds() == ["abandoned"]

    def test_each_person_is_noticed_alone(self, plan: Plan, by: Actor) -> None:
        first, second, third = people(3, plan, by)
        for person, number in ((first, 25), (second, 15), (third, 21)):
            self.leave(person, number)
        alerts.notice_unusual(now=NOON)
        assert (kinds(first), kinds(second), kinds(third)) == (["abandoned"], [], ["abandoned"])

    def test_several_answers_that_could_not_be_read_are_noticed(
        self, plan: Plan, by: Actor
    ) -> None:
        first, second, third = people(3, plan, by)
        self.leave(first, 1, end="answer_unread")
        self.leave(second, 1, end="answer_unread")
        self.leave(third, 9, end="provider_failed")
        alerts.notice_unusual(now=NOON)
        assert kinds() == []
        self.leave(second, 1, end="answer_unread")
        for minute in range(3):
            alerts.notice_unusual(now=NOON + timedelta(minutes=minute))
        assert (kinds(first), kinds(second), kinds(third)) == (["unread"], ["unread"], [])
        assert Alert.objects.get(user=second).used == 2
        alerts.mail_waiting(now=NOON)
        assert {each["subject"] for each in mails()} == {
            f"Answers to {each.email} could not be read" for each in (first, second)
        }

    def test_the_worker_looks_every_minute(self, user: User) -> None:
        self.leave(user, 21, now=timezone.now())
        tasks.tell(timestamp=0)
        assert [mail["subject"] for mail in mails()] == [
            "ada@acme.test is abandoning many model calls"
        ]


@pytest.mark.django_db
class TestTelling:
    def test_an_operator_can_act_on_the_mail(self, user: User) -> None:
        use(user, 830)
        assert alerts.mail_waiting(now=NOON) == 1
        assert alerts.mail_waiting(now=NOON) == 0
        (mail,) = mails()
        assert mail["to"] == ["ops@shell.test"]
        assert mail["subject"] == "ada@acme.test has used 83 % of this month's output tokens"
        for said in (
            "ada@acme.test (Acme) has used 830 of 1,000 output tokens in November",
            "monthly_cap_exceeded",
            "until 1 December, 00:00 UTC",
            f"https://shell.test/admin/usage/override/add/?user={user.pk}",
            f"https://shell.test/admin/accounts/user/{user.pk}/change/",
        ):
            assert said in mail["text"], said
        assert Alert.objects.get().told_at == NOON

    def test_a_used_up_cap_is_mailed_like_its_eighty_percent(self, user: User) -> None:
        use(user, 830)
        alerts.mail_waiting(now=NOON)
        use(user, 170)
        assert alerts.mail_waiting(now=NOON) == 1
        _, mail = mails()
        assert mail["subject"] == "ada@acme.test has used up this month's output tokens"
        assert "has used 1,000 of 1,000 output tokens in November" in mail["text"]
        assert "refused (monthly_cap_exceeded) until 1 December, 00:00 UTC" in mail["text"]
        assert alerts.mail_waiting(now=NOON) == 0

    def test_a_call_that_uses_up_a_cap_at_once_is_one_mail(self, user: User) -> None:
        use(user, 1_000)
        assert kinds() == ["output", "output_all"]
        assert alerts.mail_waiting(now=NOON) == 2
        (mail,) = mails()
        assert "used up" in mail["subject"]
        assert Alert.objects.waiting().count() == 0

    def test_a_client_that_names_an_address_hears_of_used_up_caps_alone(
        self, plan: Plan, by: Actor
    ) -> None:
        for name, address in (("Told", "it@told.test"), ("Untold", "")):
            client = create_client(name=name, plan=plan, by=by, now=NOON)
            set_alert_email(client_id=client.pk, email=address, by=by, now=NOON)
            for number, output in enumerate((1_000, 1_000, 850)):
                person = User.objects.create(email=f"p{number}@{name}.test", client=client)
                use(person, output)
        alerts.mail_waiting(now=NOON)
        to_operators = [each for each in mails() if each["to"] == ["ops@shell.test"]]
        assert len(to_operators) == 6
        (mail,) = [each for each in mails() if each not in to_operators]
        assert mail["to"] == ["it@told.test"]
        assert mail["subject"] == "2 caps of people at Told are used up"
        assert "- p0@told.test: 1,000 of 1,000 output tokens in November" in mail["text"]
        assert "refused until 1 December, 00:00 UTC" in mail["text"]
        assert "p2@told.test" not in mail["text"]
        assert "/admin/" not in mail["text"]

    def test_eighty_percent_of_a_cap_that_is_used_up_is_no_mail_among_many_either(
        self, plan: Plan, by: Actor
    ) -> None:
        for each in people(12, plan, by):
            use(each, 1_000)
        assert alerts.mail_waiting(now=NOON) == 24
        (mail,) = mails()
        assert mail["subject"] == "12 people are near or at a model token limit"
        assert "p003@many.test (Many): 1,000 of 1,000 output tokens in November" in mail["text"]

    def test_the_mail_about_a_day_says_when_it_is_over(self, user: User) -> None:
        daily = PlanCaps(monthly_input=None, monthly_output=None, daily=500)
        use(user, 480, plan=daily)
        with pytest.raises(DailyLimitReached):
            ask(user, plan=daily)
        alerts.mail_waiting(now=NOON)
        (mail,) = mails()
        assert mail["subject"] == "ada@acme.test has reached the daily limit"
        assert "490 of 500 tokens of 20 November" in mail["text"]
        assert "daily_limit_reached" in mail["text"]
        assert "21 November, 00:00 UTC" in mail["text"]

    @pytest.mark.parametrize(
        ("kind", "subject", "numbers", "in_a_list"),
        [
            (
                "abandoned",
                "ada@acme.test is abandoning many model calls",
                "abandoned 25 model calls within an hour, more than 20",
                "25 calls abandoned within an hour on 20 November",
            ),
            (
                "report",
                "The provider reported too many tokens for a call of ada@acme.test",
                "reported 25 tokens for a model call of ada@acme.test (Acme)",
                "25 tokens reported, 20 plausible, for a call on 20 November",
            ),
        ],
    )
    def test_unusual_calls_are_told_with_their_numbers(
        self,
        user: User,
        plan: Plan,
        by: Actor,
        kind: str,
        subject: str,
        numbers: str,
        in_a_list: str,
    ) -> None:
        day = NOON.date()
        Alert.objects.create(user=user, kind=kind, period=day, used=25, cap=20, noticed_at=NOON)
        alerts.mail_waiting(now=NOON)
        (mail,) = mails()
        assert mail["subject"] == subject
        assert numbers in mail["text"]
        assert f"https://shell.test/admin/accounts/user/{user.pk}/change/" in mail["text"]
        Alert.objects.update(told_at=None)
        for each in people(alerts.MAILS_AN_HOUR, plan, by):
            use(each, 900)
        alerts.mail_waiting(now=NOON)
        assert f"ada@acme.test (Acme): {in_a_list}" in mails()[-1]["text"]

    def test_many_at_once_are_one_mail(self, plan: Plan, by: Actor) -> None:
        for each in people(60, plan, by):
            use(each, 900)
        assert alerts.mail_waiting(now=NOON) == 60
        (mail,) = mails()
        assert mail["subject"] == "60 people are near or at a model token limit"
        assert "p000@many.test (Many): 900 of 1,000 output tokens in November" in mail["text"]
        assert "and 10 more." in mail["text"]
        assert "https://shell.test/admin/usage/alert/" in mail["text"]

    def test_many_one_after_another_are_a_few_mails_an_hour(self, plan: Plan, by: Actor) -> None:
        everybody = people(40, plan, by)
        for minute, each in enumerate(everybody):
            at = NOON + timedelta(minutes=minute)
            use(each, 900, now=at)
            alerts.mail_waiting(now=at)
        last = NOON + timedelta(minutes=60)
        alerts.mail_waiting(now=last)
        assert Alert.objects.waiting().count() == 0
        assert alerts.MAILS_AN_HOUR < len(mails()) <= alerts.MAILS_AN_HOUR + 4
        named = "".join(each["subject"] + each["text"] for each in mails())
        assert all(each.email in named for each in everybody)

    def test_a_mail_that_could_not_be_queued_waits(
        self, user: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use(user, 900)

        def away(**_: object) -> None:
            raise RuntimeError("the queue is away")

        with monkeypatch.context() as patched:
            patched.setattr("usage.mails.queue_for_operators", away)
            with pytest.raises(RuntimeError):
                alerts.mail_waiting(now=NOON)
        assert Alert.objects.waiting().count() == 1
        assert alerts.mail_waiting(now=NOON) == 1

    def test_nobody_is_told_of_a_person_erased_during_a_call(self, user: User, by: Actor) -> None:
        running, later = ask(user, output=900), ask(user, output=10)
        use(user, 10)
        erase(user, by)
        end(user, running.record_id, output=900)
        assert kinds() == ["output"]
        assert alerts.mail_waiting(now=NOON) == 0
        end(user, later.record_id, output=10)
        assert alerts.mail_waiting(now=NOON) == 0
        assert (kinds(), mails()) == ([], [])

    def test_nothing_breaks_and_nothing_is_queued_without_operators(
        self, user: User, settings: Any
    ) -> None:
        settings.OPERATOR_EMAILS = []
        use(user, 900)
        assert alerts.mail_waiting(now=NOON) == 1
        assert mails() == []


@pytest.mark.django_db
class TestChecking:
    def test_the_percentile_is_notified_once_a_month(self, plan: Plan, by: Actor) -> None:
        crowd = people(20, plan, by)
        for each in crowd[:18]:
            use(each, 100)
        for each in crowd[18:]:
            use(each, 790)
        assert alerts.check(now=NOON).percentile == pytest.approx(79)
        assert mails() == []
        for each in crowd[18:]:
            use(each, 100)
        checked = alerts.check(now=NOON)
        assert (checked.people, checked.percentile) == (20, pytest.approx(89))
        alerts.check(now=NOON + timedelta(days=1))
        (mail,) = [each for each in mails() if "95th percentile" in each["subject"]]
        assert mail["subject"] == "The 95th percentile of monthly usage is 89 % of the cap"
        assert "Of the 20 people" in mail["text"]
        assert "/admin/usage/monthlyusage/?month=2026-11" in mail["text"]

    def test_one_heavy_user_among_many_does_not_move_it(self, plan: Plan, by: Actor) -> None:
        crowd = people(40, plan, by)
        for each in crowd[1:]:
            use(each, 100)
        use(crowd[0], 1_000)
        assert alerts.check(now=NOON).percentile == pytest.approx(10)
        assert kinds() == ["output", "output_all"]

    def test_the_percentile_counts_people_with_a_cap_and_usage_this_month(
        self, plan: Plan, by: Actor, organisation: Client
    ) -> None:
        free = Plan.objects.create(name="Free of caps")
        uncapped = User.objects.create(
            email="free@many.test", client=create_client(name="Free", plan=free, by=by, now=NOON)
        )
        use(uncapped, 10_000, plan=PlanCaps(monthly_input=None, monthly_output=None, daily=None))
        first, second, idle = people(3, plan, by)
        use(first, 500)
        use(second, 900, now=NOON - timedelta(days=30))
        ask(idle)
        checked = alerts.check(now=NOON)
        assert (checked.people, checked.percentile) == (1, pytest.approx(50))

    def test_an_erased_person_is_noticed_no_more_and_counts_no_more(
        self, plan: Plan, by: Actor
    ) -> None:
        gone, stays = people(2, plan, by)
        use(gone, 900)
        use(stays, 500)
        alerts.mail_waiting(now=NOON)
        erase(gone, by)
        before = mails()
        assert alerts.check(now=NOON) == (0, 1, pytest.approx(50), 0)
        assert (kinds(), mails()) == ([], before)

    def test_a_cap_that_was_lowered_is_noticed_without_another_call(
        self, user: User, by: Actor
    ) -> None:
        use(user, 500)
        lower = Allowance(monthly_output_tokens=510)
        later = NOON + timedelta(days=5)
        grant_override(user_id=user.pk, allowance=lower, ends_at=later, reason="x", by=by, now=NOON)
        assert kinds() == []
        # Of 80 %, and of all: fewer than 16 tokens are none.
        assert alerts.check(now=NOON)[:2] == (2, 1)
        assert set(kinds()) == {"output", "output_all", "percentile"}
        assert alerts.check(now=NOON)[0] == 0

    def test_alerts_are_written_in_the_order_of_a_settlement(self, plan: Plan, by: Actor) -> None:
        """Two that write the same rows in different orders may wait for each other."""
        settled, *checked = people(3, plan, by)
        roomy = PlanCaps(monthly_input=10**6, monthly_output=10**6, daily=None)
        end(settled, ask(settled, prompt=10_000).record_id, prompt=10_000, output=1_000)
        for each in checked:
            # Charges under a higher cap are noticed by the check alone.
            end(each, ask(each, plan=roomy).record_id, prompt=10_000, output=1_000)
        assert alerts.check(now=NOON).noticed == 8
        written = Alert.objects.order_by("pk").exclude(user=None)
        assert list(written.filter(user=settled).values_list("kind", flat=True)) == list(
            written.filter(user=checked[0]).values_list("kind", flat=True)
        )
        ids = list(written.exclude(user=settled).values_list("user", flat=True))
        assert ids == sorted(ids)

    def test_the_command_says_what_it_found(
        self, user: User, capsys: pytest.CaptureFixture[str]
    ) -> None:
        call_command("check_usage_alerts")
        assert capsys.readouterr().out == (
            "check_usage_alerts: 0 people, 95th percentile -, 0 noticed, 0 emailed\n"
        )
        use(user, 900, now=datetime.now(UTC))
        call_command("check_usage_alerts", "--dry-run")
        assert capsys.readouterr().out == "check_usage_alerts: 1 people, 95th percentile 90 %\n"
        assert (kinds(), mails()) == (["output"], [])
        call_command("check_usage_alerts")
        assert "1 people, 95th percentile 90 %, 0 noticed, 1 emailed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("input", "80 % of November's input tokens: 4,852 of 6,000"),
        ("output", "80 % of November's output tokens: 4,852 of 6,000"),
        ("input_all", "all of November's input tokens: 4,852 of 6,000"),
        ("day", "the daily limit of 1 November: 4,852 of 6,000"),
        ("percentile", "95th percentile of shares at 80 % in November"),
        ("abandoned", "many abandoned calls on 1 November: 4,852"),
    ],
)
def test_an_alert_is_a_sentence_about_its_month_or_day(kind: str, said: str) -> None:
    alert = Alert(kind=kind, period=date(2026, 11, 1), used=4_852, cap=6_000)
    assert str(alert) == said
