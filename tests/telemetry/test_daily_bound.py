"""The bound of a day: what a client and each of its people may store on a UTC day."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from telemetry import pruning
from telemetry.intake import Taken, TelemetryFull, take_in
from telemetry.models import DailyShare, Event
from tests.races import race
from tests.telemetry.reports import NOON, event

MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)
ADA, EVE, MAX, ZOE, TIM = (uuid4() for _ in range(5))


@pytest.fixture(autouse=True)
def _one_mebibyte(settings: Any) -> None:
    settings.TELEMETRY_DAILY_MB = 1


@pytest.fixture
def client() -> UUID:
    return uuid4()


def batch(*, kib: int) -> list[dict[str, Any]]:
    """Events of 15 KiB."""
    return [event(properties={"text": "x " * 7_680}) for _ in range(kib // 15)]


def send(events: list[Any], *, client: UUID, person: UUID = ADA, now: datetime = NOON) -> Taken:
    return take_in(batch={"events": events}, client_id=client, user_id=person, now=now)


def stored(client: UUID) -> int:
    return sum(DailyShare.objects.filter(client_id=client).values_list("bytes", flat=True))


@pytest.mark.django_db
class TestADay:
    def test_a_person_may_use_a_quarter_of_it(self, client: UUID) -> None:
        assert send(batch(kib=240), client=client).accepted == 16
        assert send(batch(kib=30), client=client).accepted == 2
        with pytest.raises(TelemetryFull) as refused:
            send(batch(kib=15), client=client)
        assert refused.value.members == {"retry_after_iso": "2026-11-21T00:00:00Z"}
        assert refused.value.headers["Retry-After"] == str(12 * 3600)
        assert Event.objects.count() == 18
        assert send([event()], client=client, person=EVE).accepted == 1
        assert send([event()], client=uuid4()).accepted == 1

    def test_the_daily_bound_applies_to_all_people_of_the_client(self, client: UUID) -> None:
        for person in (ADA, EVE, MAX, ZOE):
            send(batch(kib=270), client=client, person=person)
        with pytest.raises(TelemetryFull):
            send([event()], client=client, person=TIM)
        assert send([event()], client=uuid4(), person=TIM).accepted == 1

    def test_the_next_one_begins_at_midnight(self, client: UUID) -> None:
        send(batch(kib=300), client=client)
        late = MIDNIGHT - timedelta(seconds=1)
        with pytest.raises(TelemetryFull) as refused:
            send([event()], client=client, now=late)
        assert refused.value.headers["Retry-After"] == "1"
        assert send([event()], client=client, now=MIDNIGHT).accepted == 1

    def test_events_that_were_stored_before_or_are_rejected_use_nothing(self, client: UUID) -> None:
        given = batch(kib=120)
        send(given, client=client)
        before = stored(client)
        assert 120 * 1024 < before < 140 * 1024
        for _ in range(3):
            assert send(given, client=client).duplicates == 8
            send([{**each, "name": ""} for each in given], client=client)
        assert stored(client) == before

    def test_a_batch_that_was_stored_is_taken_again_when_it_is_full(self, client: UUID) -> None:
        given = batch(kib=300)
        send(given, client=client)
        again = [*given, given[0], {**event(), "name": ""}]
        taken = send(again, client=client)
        assert (taken.accepted, taken.duplicates, len(taken.rejected)) == (0, len(given) + 1, 1)
        # Nobody was refused.
        assert not DailyShare.objects.filter(holder_id=client).exists()
        with pytest.raises(TelemetryFull):
            send([*given, event()], client=client)

    def test_a_refusal_leaves_one_row_for_operators(self, client: UUID) -> None:
        send(batch(kib=300), client=client)
        of_refusals = DailyShare.objects.filter(holder_id=client)
        assert not of_refusals.exists()
        for _ in range(3):
            with pytest.raises(TelemetryFull):
                send([event()], client=client)
        assert (of_refusals.get().client_id, of_refusals.get().day) == (client, NOON.date())

    def test_the_count_of_a_day_is_pruned_with_its_events(
        self, client: UUID, settings: Any
    ) -> None:
        settings.TELEMETRY_RETENTION_DAYS = 7
        send([event()], client=client)
        pruning.prune(now=NOON + timedelta(days=7))
        assert stored(client) > 0
        pruning.prune(now=NOON + timedelta(days=8))
        assert not DailyShare.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_batches_of_one_person_at_once_are_all_counted(client: UUID) -> None:
    send([event()], client=client, person=EVE)
    each = stored(client)
    batches = [[event() for _ in range(20)] for _ in range(4)]
    results = race(*[lambda given=given: send(given, client=client) for given in batches])
    assert [isinstance(taken, Taken) for taken in results] == [True] * 4, results
    assert DailyShare.objects.get(holder_id=ADA).bytes == 80 * each
