"""Batches: what is kept, what is counted, and that nothing is kept twice."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.password_validation import validate_password
from django.db import IntegrityError

from config.platform.concurrency import greenlets
from config.platform.problems.problem import Fault, InvalidRequest, ServiceUnavailable
from telemetry import intake
from telemetry.events import ReportedEvent, read
from telemetry.intake import LARGE, MOST_EVENTS, Taken, TooManyEvents, take_in
from telemetry.models import Event
from tests.races import race
from tests.telemetry.reports import CLIENT, NOON, PERSON, event, report


@pytest.mark.django_db
class TestBatches:
    def test_reported_events_are_stored(self) -> None:
        given = event(properties={"a": {"ä": [1, 2.5, None, True, "\\u0000 {} \"quoted\", 'so'"]}})
        assert report(given) == Taken(accepted=1, duplicates=0, rejected=[])
        kept = Event.objects.get()
        assert (str(kept.event_id), kept.client_id, kept.user_id) == (given["id"], CLIENT, PERSON)
        assert (kept.name, kept.app, kept.shell_version) == ("document.opened", "sheets", "1.2.3")
        assert (kept.occurred_at, kept.received_at) == (NOON - timedelta(minutes=1), NOON)
        assert kept.properties == given["properties"]

    @pytest.mark.parametrize("number", [1, 2])
    def test_events_of_the_shell_itself_name_no_app(self, number: int) -> None:
        given = [event(app=..., shell_version=...) for _ in range(number)]
        assert report(*given).accepted == number
        assert {(each.app, each.shell_version) for each in Event.objects.all()} == {("", "")}

    def test_ends_of_lines_within_texts_stay_where_they_are(self) -> None:
        texts = {"a\nb": "c\r\n\u2028d", "e": ["\n", "\x1f", "\x85"]}
        report(event(), event(properties=texts), event())
        assert Event.objects.order_by("id").filter(properties=texts).count() == 1
        assert Event.objects.count() == 3

    def test_a_bad_event_does_not_cost_the_good_ones(self) -> None:
        taken = report(
            event(), event(name=...), 7, event(properties={"x": "\0"}), event(id="no"), event()
        )
        assert (taken.accepted, taken.duplicates, Event.objects.count()) == (2, 0, 2)
        assert [(each.pointer, each.code) for each in taken.rejected] == [
            ("/events/1/name", "required"),
            ("/events/2", "invalid"),
            ("/events/3/properties/x", "invalid_characters"),
            ("/events/4/id", "invalid"),
        ]

    def test_sending_again_is_harmless(self) -> None:
        batch = [event() for _ in range(3)]
        report(*batch)
        again = report(*batch, event(), now=NOON + timedelta(days=1))
        assert again == Taken(accepted=1, duplicates=3, rejected=[])
        assert Event.objects.filter(received_at=NOON).count() == 3

    def test_an_id_says_which_event_it_is_whatever_else_has_changed(self) -> None:
        given = event()
        report(given)
        other = {**given, "occurred_at": "2026-11-01T00:00:00Z", "name": "other"}
        assert report({**other, "id": given["id"].upper()}).duplicates == 1
        assert Event.objects.get().name == "document.opened"

    def test_one_event_twice_in_a_batch_is_kept_once(self) -> None:
        given = event()
        bad = {**given, "name": ""}
        taken = report(bad, given, given, {**given, "name": "later"})
        assert (taken.accepted, taken.duplicates, len(taken.rejected)) == (1, 2, 1)
        assert Event.objects.get().name == "document.opened"

    def test_two_clients_may_use_one_id(self) -> None:
        given = event()
        assert report(given).accepted == report(given, client=uuid4()).accepted == 1
        assert Event.objects.count() == 2

    def test_the_database_itself_refuses_a_second_copy(self) -> None:
        report(event())
        copy = Event.objects.get()
        copy.pk = None
        with pytest.raises(IntegrityError, match="telemetry_event_once_per_client"):
            copy.save(force_insert=True)

    def test_the_database_itself_refuses_an_event_without_a_name(self) -> None:
        with pytest.raises(IntegrityError, match="telemetry_event_has_a_name"):
            Event.objects.create(
                event_id=uuid4(),
                client_id=CLIENT,
                user_id=PERSON,
                name="",
                occurred_at=NOON,
                received_at=NOON,
            )

    def test_an_empty_batch_is_fine_and_asks_nothing(self, django_assert_num_queries) -> None:
        with django_assert_num_queries(0):
            assert report() == Taken(accepted=0, duplicates=0, rejected=[])

    def test_a_batch_may_have_five_hundred_events_and_no_more(self) -> None:
        many = [event() for _ in range(MOST_EVENTS)]
        assert report(*many).accepted == 500
        with pytest.raises(TooManyEvents) as refused:
            report(*many, event())
        assert refused.value.members == {"max_events": 500, "max_bytes": 1024 * 1024}

    def test_secrets_are_replaced_before_anything_is_kept(self) -> None:
        report(event(properties={"who": "ada@acme.test", "deep": [{"password": "hunter2"}]}))
        kept = Event.objects.get().properties
        assert kept == {"who": "[email]", "deep": [{"password": "[secret]"}]}

    @pytest.mark.parametrize(
        ("batch", "code"),
        [({}, "required"), ({"events": None}, "not_a_list"), ({"events": {}}, "not_a_list")],
    )
    def test_a_body_without_a_list_is_no_batch(self, batch: dict[str, Any], code: str) -> None:
        with pytest.raises(InvalidRequest) as refused:
            take_in(batch=batch, client_id=CLIENT, user_id=PERSON, now=NOON)
        (fault,) = refused.value.errors
        assert isinstance(fault, Fault)
        assert (fault.pointer, fault.code) == ("/events", code)


@pytest.mark.django_db(transaction=True)
class TestRaces:
    @pytest.mark.parametrize("attempt", range(3))
    def test_one_batch_sent_by_many_at_once_is_kept_once(self, attempt: int) -> None:
        batch = [event() for _ in range(200)]
        orders = (batch, batch[::-1], batch[100:] + batch[:100], batch[50:] + batch[:50])
        results = race(*[lambda given=given: report(*given) for given in orders])
        taken = [each for each in results if isinstance(each, Taken)]
        assert len(taken) == len(results), results
        assert sum(each.accepted for each in taken) == 200
        assert all(each.accepted + each.duplicates == 200 for each in taken)
        assert Event.objects.count() == 200

    def test_batches_that_overlap_are_kept_whole_and_once(self) -> None:
        events = [event() for _ in range(120)]
        batches = [events[start : start + 60] for start in (0, 20, 40, 60)]
        results = race(*[lambda given=given: report(*given) for given in batches])
        assert sum(each.accepted for each in results if isinstance(each, Taken)) == 120
        assert Event.objects.count() == 120


@pytest.mark.django_db
def test_a_large_batch_is_checked_like_a_small_one() -> None:
    given = [event(properties={"password": "hunter2"}), event(name=""), event()]
    batch = {"events": [*given, given[0]]}
    taken = take_in(batch=batch, client_id=CLIENT, user_id=PERSON, now=NOON, size=LARGE + 1)
    assert (taken.accepted, taken.duplicates) == (2, 1)
    assert [fault.pointer for fault in taken.rejected] == ["/events/1/name"]
    assert Event.objects.get(event_id=given[0]["id"]).properties == {"password": "[secret]"}


@pytest.mark.django_db
def test_a_persons_second_large_batch_waits_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(greenlets, "SHARE_SECONDS", 0.05)
    batch = {"events": [event()]}

    def send(person: UUID) -> Taken:
        return take_in(batch=batch, client_id=CLIENT, user_id=person, now=NOON, size=LARGE + 1)

    with intake._checking.share_of(PERSON):
        assert send(uuid4()).accepted == 1
        with pytest.raises(ServiceUnavailable):
            send(PERSON)
        assert report(event()).accepted == 1
    assert send(PERSON).duplicates == 1


@pytest.mark.django_db
def test_a_large_batch_pauses_for_its_own_check_and_not_for_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, pauses = [0.0], list[float]()

    def run_after_others(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        clock[0] += 2.0
        return work(*args, **kwargs)

    def read_slowly(given: Any, *, now: datetime) -> ReportedEvent:
        clock[0] += 0.25
        return read(given, now=now)

    monkeypatch.setattr(intake._checking, "run", run_after_others)
    monkeypatch.setattr(intake, "read", read_slowly)
    monkeypatch.setattr(intake, "monotonic", lambda: clock[0])
    monkeypatch.setattr(intake, "sleep", pauses.append)
    batch = {"events": [event(), event()]}
    take_in(batch=batch, client_id=CLIENT, user_id=PERSON, now=NOON, size=LARGE + 1)
    assert pauses == [0.5]


@pytest.mark.django_db
def test_a_large_batch_is_to_come_again_while_others_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A password can be chosen meanwhile."""
    monkeypatch.setattr(greenlets, "QUEUE_SECONDS", 0.05)
    begun, may_end = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert may_end.wait(100)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(intake._checking.run, slow)
        assert begun.wait(100)
        batch = {"events": [event()]}
        with pytest.raises(ServiceUnavailable):
            take_in(batch=batch, client_id=CLIENT, user_id=PERSON, now=NOON, size=LARGE + 1)
        assert take_in(batch=batch, client_id=CLIENT, user_id=PERSON, now=NOON).accepted == 1
        validate_password("correct horse battery staple")
        may_end.set()
        first.result(100)
