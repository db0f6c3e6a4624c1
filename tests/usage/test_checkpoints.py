"""Checkpoints: what running calls have cost so far, and what a dead one is charged because of them."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from django.db import IntegrityError, connection

from accounts.models import Client, User
from config.platform.db.connections import database_now
from tests.races import race
from tests.usage.test_caps import NOON, ROOMY, ask, assert_totals_are_the_ledger, done
from usage.caps import SoFar, checkpoint
from usage.costs import AskedRoute
from usage.models import UsageRecord
from usage.settlement import settle_abandoned

P = AskedRoute("p")
LATER = NOON + timedelta(hours=1)
FIRST_BYTE = NOON + timedelta(seconds=2)


@pytest.mark.django_db
class TestNoting:
    def test_all_are_noted_by_one_statement(self, user: User, django_assert_num_queries) -> None:
        calls = [ask(user, ROOMY).record_id for _ in range(3)]
        news = [SoFar(pk, 5 + at, 6 + at, FIRST_BYTE, P) for at, pk in enumerate(calls)]
        with django_assert_num_queries(1):
            assert checkpoint(news) == set(calls)
        for at, pk in enumerate(calls):
            record = UsageRecord.objects.get(pk=pk)
            assert (record.checkpoint_input, record.checkpoint_output) == (5 + at, 6 + at)
            assert (record.state, record.first_byte_at) == ("open", FIRST_BYTE)
            assert record.checkpoint_at is not None
        assert_totals_are_the_ledger(user)

    def test_no_query_is_made_with_nothing_to_note(self, django_assert_num_queries) -> None:
        with django_assert_num_queries(0):
            assert checkpoint([]) == set()

    def test_a_settled_record_is_left_as_it_is(self, user: User) -> None:
        call = ask(user, ROOMY)
        done(call, prompt=1, output=2)
        before = UsageRecord.objects.values().get()
        assert checkpoint([SoFar(call.record_id, 50, 60, None, P)]) == set()
        assert UsageRecord.objects.values().get() == before

    def test_a_running_call_can_be_noted_without_any_number(self, user: User) -> None:
        call = ask(user, ROOMY)
        assert checkpoint([SoFar(call.record_id, None, None, None, P)]) == {call.record_id}
        record = UsageRecord.objects.get()
        assert (record.checkpoint_input, record.checkpoint_output) == (None, None)
        assert record.checkpoint_at is not None

    @pytest.mark.parametrize("half", [{"checkpoint_input": 1}, {"checkpoint_output": 1}])
    def test_half_a_checkpoint_is_none(self, user: User, half: dict[str, int]) -> None:
        ask(user, ROOMY)
        with pytest.raises(IntegrityError, match="usage_checkpoint_is_whole"):
            UsageRecord.objects.update(checkpoint_at=NOON, **half)

    def test_a_call_that_runs_does_not_expire_because_a_hosts_clock_is_behind(
        self, user: User
    ) -> None:
        behind = datetime.now(UTC) - timedelta(days=1)
        call = ask(user, ROOMY, now=behind)
        checkpoint([SoFar(call.record_id, 1, 1, None, P)])
        assert settle_abandoned(now=database_now()) == 0
        assert settle_abandoned(now=database_now() + timedelta(seconds=61)) == 1

    def test_a_checkpoint_does_not_extend_a_call_beyond_a_minute(self, user: User) -> None:
        call = ask(user, ROOMY)
        expires = UsageRecord.objects.get().expires_at
        checkpoint([SoFar(call.record_id, 1, 1, None, P)])
        assert max(expires, UsageRecord.objects.get().checkpoint_at + timedelta(seconds=60)) == (
            UsageRecord.objects.get().expires_at
        )


@pytest.mark.django_db
class TestAbandoned:
    def test_an_abandoned_call_is_charged_its_last_checkpoint(self, user: User) -> None:
        call = ask(user, ROOMY, prompt=100, output=1000)
        checkpoint([SoFar(call.record_id, 90, 30, FIRST_BYTE, P)])
        checkpoint([SoFar(call.record_id, 90, 70, FIRST_BYTE, P)])
        UsageRecord.objects.update(expires_at=NOON)
        assert settle_abandoned(now=LATER) == 1
        record = UsageRecord.objects.get()
        assert (record.end, record.source) == ("crashed", "estimated")
        assert (record.input_tokens, record.output_tokens) == (90, 70)
        assert (record.first_byte_at, record.settled_at) == (FIRST_BYTE, LATER)
        assert_totals_are_the_ledger(user)

    def test_a_checkpoint_of_nothing_is_charged_as_nothing(self, user: User) -> None:
        call = ask(user, ROOMY)
        checkpoint([SoFar(call.record_id, 0, 0, None, P)])
        UsageRecord.objects.update(expires_at=NOON)
        settle_abandoned(now=LATER)
        record = UsageRecord.objects.get()
        assert (record.input_tokens, record.output_tokens) == (0, 0)

    def test_a_call_without_a_number_is_charged_what_it_may_have_cost(self, user: User) -> None:
        call = ask(user, ROOMY, prompt=10, output=20)
        checkpoint([SoFar(call.record_id, None, None, None, P)])
        UsageRecord.objects.update(expires_at=NOON)
        settle_abandoned(now=LATER)
        record = UsageRecord.objects.get()
        assert (record.input_tokens, record.output_tokens) == (10, 20)

    def test_more_than_one_batch_is_settled_in_one_run(
        self, user: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("usage.settlement.SWEEP_SIZE", 2)
        for _ in range(5):
            ask(user, ROOMY)
        assert settle_abandoned(now=LATER) == 5
        assert_totals_are_the_ledger(user)


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_two_runs_over_many_people_settle_each_record_once(
        self, user: User, organisation: Client
    ) -> None:
        another = User.objects.create_user("another@example.test", "pw", client=organisation)
        for at in range(40):
            ask((user, another)[at % 2], ROOMY, prompt=1, output=1)
        results = race(*[lambda: settle_abandoned(now=LATER)] * 4)
        assert all(isinstance(each, int) for each in results), results
        assert sum(each for each in results if isinstance(each, int)) == 40
        assert_totals_are_the_ledger(user)
        assert_totals_are_the_ledger(another)

    def test_one_of_checkpoint_settlement_and_sweep_settles_a_call(self, user: User) -> None:
        for _ in range(10):
            call = ask(user, ROOMY, prompt=1, output=1)

            def note(pk=call.record_id) -> int:
                return checkpoint([SoFar(pk, 1, 1, None, P), SoFar(uuid4(), 1, 1, None, P)])

            def finish(call=call) -> int:
                return int(done(call, prompt=1, output=1))

            def sweep() -> int:
                return settle_abandoned(now=LATER)

            _, *settled = race(note, finish, sweep, sweep)
            # The checkpoint may have come first, and then the record has not expired for the sweeps.
            assert settled[0] in {0, 1}
            assert sum(each for each in settled if isinstance(each, int)) == 1, settled
            assert_totals_are_the_ledger(user)


@pytest.mark.django_db(transaction=True)
def test_a_record_that_is_being_settled_is_not_waited_for(user: User) -> None:
    free, held = ask(user, ROOMY).record_id, ask(user, ROOMY).record_id
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("SELECT 1 FROM usage_usagerecord WHERE id = %s FOR NO KEY UPDATE", [held])
        news = [SoFar(each, 1, 1, None, P) for each in (held, free)]
        assert checkpoint(news) == {free}
    assert checkpoint(news) == {held, free}
