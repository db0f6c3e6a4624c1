"""Stopping a person's model calls, and ending one call."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from accounts.audit import Actor
from accounts.models import AuditEvent, User
from config.platform.problems.problem import InvalidRequest
from tests.races import race
from tests.usage.ledger import ask as ask_ledger
from tests.usage.ledger import settle
from usage.caps import Reservation
from usage.costs import Spent
from usage.limits import PlanCaps
from usage.models import MonthlyUsage, RunningCall, Stop, UsageRecord
from usage.stops import (
    ModelCallsStopped,
    end_call,
    ended_by_operators,
    restart_model_calls,
    stop_model_calls,
    stop_of,
)

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ROOMY = PlanCaps(monthly_input=None, monthly_output=None, daily=None)


def ask(user: User, *, now: datetime = NOW, plan: PlanCaps = ROOMY) -> Reservation:
    return ask_ledger(
        user_id=user.pk,
        client_id=user.client_id or uuid4(),
        session_id=uuid4(),
        model="small",
        provider="p",
        request_id="",
        streamed=True,
        input_estimate=10,
        output_wanted=100,
        plan=plan,
        now=now,
    )


def stop(user: User, by: Actor, *, ends_at: datetime | None = None, now: datetime = NOW) -> int:
    return stop_model_calls(user_id=user.pk, reason="Runs wild.", ends_at=ends_at, by=by, now=now)


def restart(user: User, by: Actor, *, now: datetime = NOW) -> bool:
    return restart_model_calls(user_id=user.pk, reason="All good.", by=by, now=now)


@pytest.mark.django_db
class TestStopping:
    def test_no_call_starts_until_it_is_taken_back(self, user: User, by: Actor) -> None:
        assert stop(user, by) == 0
        for _ in range(2):
            with pytest.raises(ModelCallsStopped) as refusal:
                ask(user)
        assert (refusal.value.status, refusal.value.code) == (403, "model_calls_stopped")
        assert restart(user, by)
        assert ask(user).output_limit == 100
        assert not restart(user, by)

    def test_a_refused_call_leaves_nothing(self, user: User, by: Actor) -> None:
        ask(user)
        before = MonthlyUsage.objects.values().get()
        stop(user, by)
        with pytest.raises(ModelCallsStopped):
            ask(user)
        assert MonthlyUsage.objects.values().get() == before
        assert UsageRecord.objects.count() == 1

    def test_a_refused_call_creates_no_row_of_a_month(self, user: User, by: Actor) -> None:
        stop(user, by)
        with pytest.raises(ModelCallsStopped):
            ask(user)
        assert not MonthlyUsage.objects.exists()

    def test_a_stop_is_reported_before_caps(self, user: User, by: Actor) -> None:
        stop(user, by)
        with pytest.raises(ModelCallsStopped):
            ask(user, plan=PlanCaps(monthly_input=0, monthly_output=0, daily=0))

    def test_a_stop_ends_by_itself_at_its_end(self, user: User, by: Actor) -> None:
        stop(user, by, ends_at=NOW + HOUR)
        with pytest.raises(ModelCallsStopped):
            ask(user, now=NOW + HOUR - timedelta(seconds=1))
        assert ask(user, now=NOW + HOUR)
        assert not restart(user, by, now=NOW + HOUR)

    def test_calls_of_other_people_continue(self, user: User, by: Actor) -> None:
        other = User.objects.create_user("bert@acme.test", client=user.client)
        stop(user, by)
        assert ask(other)

    def test_admission_is_one_statement_still(
        self, user: User, by: Actor, django_assert_num_queries: Any
    ) -> None:
        ask(user)
        with django_assert_num_queries(1):
            ask(user)

    def test_stopping_again_replaces_reason_and_end(self, user: User, by: Actor) -> None:
        stop(user, by, ends_at=NOW + HOUR)
        stop(user, by)
        assert Stop.objects.get().ends_at is None
        assert stop_of(user, now=NOW + 100 * HOUR)
        again = AuditEvent.objects.filter(action="user:model_calls_stopped").order_by("id")[1]
        assert again.before == {"model_calls": "stopped", "until": "2026-11-20T13:00:00Z"}

    def test_stopping_and_resuming_are_audited_with_their_reasons(
        self, user: User, by: Actor
    ) -> None:
        stop(user, by, ends_at=NOW + HOUR)
        restart(user, by)
        stopped, restarted = AuditEvent.objects.filter(action__startswith="user:model").order_by(
            "id"
        )
        assert (stopped.action, stopped.reason) == ("user:model_calls_stopped", "Runs wild.")
        seen = {"model_calls": "stopped", "until": "2026-11-20T13:00:00Z"}
        assert (stopped.before, stopped.after) == (None, seen)
        since = {"since": "2026-11-20T12:00:00Z"}
        assert (restarted.before, restarted.after) == (seen | since, None)
        assert (restarted.action, restarted.reason) == ("user:model_calls_restarted", "All good.")
        for event in (stopped, restarted):
            assert (event.target, event.target_id, event.actor) == (
                user.email,
                str(user.pk),
                by.name,
            )

    @pytest.mark.parametrize(
        ("reason", "ends_in", "pointers"),
        [
            (" ", None, ["/reason"]),
            ("x", timedelta(0), ["/ends_at"]),
            ("", -HOUR, ["/reason", "/ends_at"]),
        ],
    )
    def test_a_stop_has_a_reason_and_no_end_that_has_passed(
        self, user: User, by: Actor, reason: str, ends_in: timedelta | None, pointers: list[str]
    ) -> None:
        ends_at = None if ends_in is None else NOW + ends_in
        with pytest.raises(InvalidRequest) as refused:
            stop_model_calls(user_id=user.pk, reason=reason, ends_at=ends_at, by=by, now=NOW)
        assert [fault.pointer for fault in refused.value.errors] == pointers
        assert not Stop.objects.exists()

    def test_restarting_requires_a_reason(self, user: User, by: Actor) -> None:
        stop(user, by)
        with pytest.raises(InvalidRequest):
            restart_model_calls(user_id=user.pk, reason="", by=by, now=NOW)
        assert stop_of(user, now=NOW)

    @pytest.mark.parametrize("broken", [{"reason": ""}, {"ends_at": NOW}])
    def test_the_database_holds_reason_and_end(self, user: User, broken: dict[str, Any]) -> None:
        with pytest.raises(IntegrityError), transaction.atomic():
            Stop.objects.create(**{"user": user, "stopped_at": NOW, "reason": "x", **broken})


@pytest.mark.django_db
class TestRunningCalls:
    def test_all_calls_of_a_person_are_signalled_to_end(self, user: User, by: Actor) -> None:
        other = User.objects.create_user("bert@acme.test", client=user.client)
        mine = {ask(user).record_id, ask(user).record_id}
        ids = {*mine, ask(other).record_id}
        assert ended_by_operators(record_ids=ids, now=NOW) == set()
        assert stop(user, by) == 2
        assert ended_by_operators(record_ids=ids, now=NOW) == mine
        restart(user, by)
        assert ended_by_operators(record_ids=ids, now=NOW) == set()

    def test_one_is_ended_and_the_person_goes_on(self, user: User, by: Actor) -> None:
        one, other = ask(user), ask(user)
        assert end_call(record_id=one.record_id, reason="Loops.", by=by, now=NOW)
        assert not end_call(record_id=one.record_id, reason="Loops.", by=by, now=NOW)
        ids = [one.record_id, other.record_id]
        assert ended_by_operators(record_ids=ids, now=NOW) == {one.record_id}
        assert ask(user)
        event = AuditEvent.objects.get(action="user:model_call_ended")
        assert (event.target_id, event.reason) == (str(user.pk), "Loops.")
        assert event.after == {"call": str(one.record_id), "model": "small"}

    def test_a_call_that_has_ended_is_not_ended_again(self, user: User, by: Actor) -> None:
        call = ask(user)
        settle(
            record_id=call.record_id,
            user_id=user.pk,
            spent=Spent(),
            source=UsageRecord.Source.COUNTED,
            end=UsageRecord.End.DONE,
            now=NOW,
        )
        assert not end_call(record_id=call.record_id, reason="Loops.", by=by, now=NOW)
        assert not RunningCall.objects.exists()

    def test_ending_a_call_requires_a_reason(self, user: User, by: Actor) -> None:
        call = ask(user)
        with pytest.raises(InvalidRequest):
            end_call(record_id=call.record_id, reason=" ", by=by, now=NOW)

    def test_looking_takes_one_query(self, user: User, django_assert_num_queries: Any) -> None:
        ids = [ask(user).record_id for _ in range(5)]
        with django_assert_num_queries(1):
            ended_by_operators(record_ids=ids, now=NOW)


@pytest.mark.django_db(transaction=True)
def test_each_call_that_races_a_stop_is_refused_or_told_to_end(user: User, by: Actor) -> None:
    ask(user)

    def call() -> object:
        return ask(user)

    results = race(*[call] * 6, lambda: stop(user, by), lambda: stop(user, by))
    admitted = [each.record_id for each in results if isinstance(each, Reservation)]
    refused = [each for each in results if isinstance(each, Exception)]
    assert len(admitted) + len(refused) == 6
    assert all(isinstance(each, ModelCallsStopped) for each in refused)
    assert ended_by_operators(record_ids=admitted, now=NOW) == set(admitted)
    assert Stop.objects.count() == 1
