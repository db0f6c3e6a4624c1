"""Web workers that are killed, and a service that is told to stop."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

import psycopg
import pytest
import requests

from tests.served.conftest import Ground, SignIn
from tests.served.crowd import all_at_once
from tests.served.database import Database
from tests.served.ledger import (
    assert_nothing_is_reserved,
    records_of,
    the_record,
)
from tests.served.people import Person, add_person
from tests.served.service import HOST, WORKERS, Service, running_service, working_off
from tests.served.shell import DONE, Caller, events, stand_in
from tests.standins.provider_process import Provider
from tests.waiting import eventually
from usage.models import UsageRecord

# Nothing beyond packages is needed: these only wait for long.
LONG = pytest.mark.wire
TRIES = 3


@pytest.fixture
def mortal(ground: Ground) -> Iterator[Service]:
    """A service of the test's own."""
    with running_service(ground.folder, ground.environ) as service:
        yield service


def test_a_call_whose_worker_was_killed_is_settled_once_after_its_time(
    mortal: Service, database: Database, provider: Provider, person: Person, sign_in: SignIn
) -> None:
    shell = sign_in(mortal, person)
    before = mortal.workers()
    with shell.stream(stand_in("tokens=100000 delay=0.2"), max_tokens=500) as stream:
        _wait_for_a_checkpoint(database, person)
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        with pytest.raises(OSError):
            stream.rest()
    provider.wait_for(lambda stats: stats["streams_open"] == 0)
    eventually(lambda: len(mortal.workers()) == WORKERS and not {*before} & {*mortal.workers()})

    # Nobody can know that it is dead before its time is over.
    assert "0 settled" in mortal.manage("settle_abandoned_calls")
    (record,) = records_of(database, person)
    assert record.state == UsageRecord.State.OPEN
    usage = shell.usage()
    assert usage["output"]["in_flight"] == record.reserved_output == 500
    assert shell.complete("Others go on.").status_code == 200

    _let_expire(database, record)
    assert "1 settled" in mortal.manage("settle_abandoned_calls")
    assert "0 settled" in mortal.manage("settle_abandoned_calls")
    after = _assert_charged_what_was_last_known(database, person, record)
    assert 0 < after.output_tokens < 500
    assert after.first_byte_at is not None


@LONG
def test_a_one_shot_call_that_was_killed_costs_what_it_may_have(
    mortal: Service, database: Database, provider: Provider, person: Person, sign_in: SignIn
) -> None:
    shell = sign_in(mortal, person)

    def call(number: int) -> bool:
        if number:
            with pytest.raises(requests.ConnectionError):
                shell.complete(stand_in("tokens=10 delay=60"), max_tokens=70)
            return True
        provider.wait_for(lambda stats: stats["requests_open"] == 1)
        for worker in mortal.workers():
            os.kill(worker, signal.SIGKILL)
        return True

    assert all(all_at_once(2, call))
    provider.wait_for(lambda stats: stats["requests_open"] == 0)
    (record,) = records_of(database, person)
    _let_expire(database, record)
    assert "1 settled" in mortal.manage("settle_abandoned_calls")
    after = _assert_charged_what_was_last_known(database, person, record)
    assert (after.output_tokens, after.input_tokens) == (70, record.reserved_input)


@LONG
def test_a_stream_past_the_graceful_timeout_is_cut_and_charged_as_far_as_known(
    ground: Ground, database: Database, provider: Provider, person: Person, sign_in: SignIn
) -> None:
    impatient = {"GUNICORN_CMD_ARGS": "--graceful-timeout 1"}
    with running_service(ground.folder, {**ground.environ, **impatient}) as service:
        shell = sign_in(service, person)
        with shell.stream(stand_in("tokens=100000 delay=0.2"), max_tokens=500) as stream:
            _wait_for_a_checkpoint(database, person)
            os.kill(service.child.pid, signal.SIGTERM)
            # A last event, if there is time for one, is not that of a whole answer.
            with suppress(requests.RequestException):
                assert DONE not in events(stream.rest())
        eventually(lambda: service.child.ended is not None)
        provider.wait_for(lambda stats: stats["streams_open"] == 0)
        (record,) = records_of(database, person)
        if record.state == UsageRecord.State.OPEN:
            _let_expire(database, record)
            assert "1 settled" in service.manage("settle_abandoned_calls")
    (record,) = records_of(database, person)
    assert record.end == "crashed"
    assert 0 < record.output_tokens < 500
    assert record.input_tokens == record.reserved_input
    assert_nothing_is_reserved(database, person)


@pytest.mark.parametrize(
    ("signals", "grace", "known"),
    [
        # As long as it is granted, the answer is awaited.
        pytest.param(
            signal.SIGTERM,
            30,
            (9, "provider", "client_gone"),
            id="told-to-stop",
            marks=pytest.mark.full,
        ),
        # Past the grace the time counts, up to the reservation.
        pytest.param(
            signal.SIGTERM,
            6,
            (70, "estimated", "client_gone"),
            id="past-its-grace",
            marks=pytest.mark.full,
        ),
        pytest.param(signal.SIGKILL, 30, (70, "estimated", "crashed"), id="killed"),
    ],
)
def test_a_whole_answer_that_was_left_is_charged_though_its_process_ends(
    ground: Ground,
    database: Database,
    provider: Provider,
    person: Person,
    sign_in: SignIn,
    signals: signal.Signals,
    grace: int,
    known: tuple[int, str, str],
) -> None:
    patience = {"GUNICORN_CMD_ARGS": f"--graceful-timeout {grace}"}
    with running_service(ground.folder, {**ground.environ, **patience}) as service:
        shell = sign_in(service, person)
        telling = stand_in("tokens=9 held=yes")
        caller = Caller(shell, service.port, "/v1/llm/complete", telling, max_tokens=70)
        provider.wait_for(lambda stats: stats["requests_open"] == 1)
        caller.close()
        # The watch has noticed.
        eventually(lambda: records_of(database, person)[0].client_left_at)
        assert provider.stats()["requests_open"] == 1
        if signals == signal.SIGTERM:
            os.kill(service.child.pid, signals)
            if known[1] == "provider":
                eventually(lambda: not _takes_connections(service))
                provider.go()
            eventually(lambda: service.child.ended is not None)
        else:
            for worker in service.workers():
                os.kill(worker, signals)
            (record,) = records_of(database, person)
            _let_expire(database, record)
            assert "1 settled" in service.manage("settle_abandoned_calls")
    (record,) = records_of(database, person)
    assert (record.output_tokens, record.source, record.end) == known
    assert_nothing_is_reserved(database, person)


@LONG
def test_a_call_that_is_cut_at_the_end_of_the_grace_has_time_to_wait_for_a_lock(
    ground: Ground, database: Database, provider: Provider, sign_in: SignIn
) -> None:
    def record_of_it() -> UsageRecord:
        person = add_person(database)
        patience = {"GUNICORN_CMD_ARGS": "--graceful-timeout 10"}
        telling = stand_in("tokens=100000 delay=0.02")
        with running_service(ground.folder, {**ground.environ, **patience}) as service:
            caller = Caller(sign_in(service, person), service.port, "/v1/llm/stream", telling)
            caller.read(events=5)
            with psycopg.connect(database.url) as other:
                other.execute(
                    "SELECT 1 FROM usage_monthlyusage WHERE user_id = %s FOR UPDATE", [person.id]
                )
                os.kill(service.child.pid, signal.SIGTERM)
                provider.wait_for(lambda stats: stats["streams_open"] == 0)
                # Longer than a statement of a web process waits for a lock: only another attempt can succeed.
                time.sleep(4.5)
            eventually(lambda: service.child.ended is not None)
            caller.close()
        (record,) = records_of(database, person)
        if not record.end:
            _let_expire(database, record)
            assert "1 settled" in service.manage("settle_abandoned_calls")
        assert_nothing_is_reserved(database, person)
        return record

    # Six seconds are all there is for it. A machine that stands still then is asked again.
    records = (record_of_it() for _ in range(TRIES))
    record = next(each for each in records if each.end)
    assert (record.end, record.source) == ("crashed", "counted")


def test_the_worker_settles_what_was_abandoned(
    mortal: Service, database: Database, person: Person, sign_in: SignIn
) -> None:
    shell = sign_in(mortal, person)
    with shell.stream(stand_in("tokens=100000 delay=0.02")) as stream:
        stream.next_event()
        for worker in mortal.workers():
            os.kill(worker, signal.SIGKILL)
    (record,) = records_of(database, person)
    _let_expire(database, record)
    with working_off(mortal):
        # It looks every minute, and at once when it starts.
        the_record(database, person, seconds=90)
    _assert_charged_what_was_last_known(database, person, record)


def test_a_stopping_service_lets_running_calls_finish(
    mortal: Service, database: Database, provider: Provider, person: Person, sign_in: SignIn
) -> None:
    shell = sign_in(mortal, person)

    def call(number: int) -> bool:
        telling = stand_in("tokens=40 held=yes")
        if number == 0:
            provider.wait_for(lambda stats: stats["requests_open"] == 4)
            os.kill(mortal.child.pid, signal.SIGTERM)
            eventually(lambda: not _takes_connections(mortal))
            provider.go()
            return True
        if number % 2:
            return shell.complete(telling).status_code == 200
        with shell.stream(telling) as stream:
            return list(stream)[-1] == DONE

    assert all(all_at_once(5, call))
    eventually(lambda: mortal.child.ended == 0)
    assert {record.end for record in records_of(database, person)} == {"done"}
    assert_nothing_is_reserved(database, person)


def _takes_connections(service: Service) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, service.port)) == 0


def _let_expire(database: Database, record: UsageRecord) -> None:
    """As if its minutes had gone by."""
    with database.rows():
        UsageRecord.objects.filter(pk=record.pk).update(expires_at=datetime.now(UTC))


def _wait_for_a_checkpoint(database: Database, person: Person) -> None:
    """Returns once the ledger has some output of the person's only call."""
    eventually(lambda: any(each.checkpoint_output for each in records_of(database, person)))


def _assert_charged_what_was_last_known(
    database: Database, person: Person, record: UsageRecord
) -> UsageRecord:
    """Its last checkpoint; without one nobody knows what it did cost, so it cost what it may have."""
    after = next(each for each in records_of(database, person) if each.pk == record.pk)
    assert (after.end, after.source) == ("crashed", "estimated")
    known = record.checkpoint_output is not None
    most = (record.reserved_input, record.reserved_output)
    last = (record.checkpoint_input, record.checkpoint_output)
    assert (after.input_tokens, after.output_tokens) == (last if known else most)
    assert_nothing_is_reserved(database, person)
    return after
