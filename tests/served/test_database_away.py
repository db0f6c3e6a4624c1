"""The database goes away while calls run: what the caller sees, and that the ledger is right once it is back."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from json import loads

import pytest

from accounts.keys.key_ring import RELOAD_SECONDS, WAIT_SECONDS
from tests.served.cable import Cable, new_cable
from tests.served.conftest import Ground, SignIn
from tests.served.database import Database
from tests.served.ledger import DEADLINE, assert_nothing_is_reserved, the_record
from tests.served.people import Person
from tests.served.service import Service, running_service
from tests.served.shell import DONE, Shell, stand_in
from tests.standins.provider_process import Provider
from tests.waiting import eventually

# Nothing beyond packages is needed: these only wait for long.
LONG = pytest.mark.wire
# Long enough to be in the middle of, and known to the token.
ANSWER = stand_in("tokens=60 delay=0.05")
# For which a request waits for a connection, and what all else may take.
CONNECTION_SECONDS = 5.0
SOME_SECONDS = 1.0


@pytest.fixture(scope="module")
def cable(ground: Ground) -> Iterator[Cable]:
    with new_cable(ground.database) as cable:
        yield cable


@pytest.fixture(scope="module")
def hanging(ground: Ground, cable: Cable) -> Iterator[Service]:
    """A service on that cable, which says something of a silence soon."""
    own = {"DATABASE_URL": cable.url, "LLM_KEEPALIVE_SECONDS": "0.5", "WEB_WORKERS": "1"}
    with running_service(ground.folder, {**ground.environ, **own}) as service:
        yield service


@pytest.fixture
def caller(hanging: Service, person: Person, sign_in: SignIn) -> Shell:
    eventually(lambda: Shell(hanging.url).get("/healthz").status_code == 200)
    return sign_in(hanging, person)


def assert_paid_as_reported(database: Database, person: Person, *, end: str = "done") -> None:
    record = the_record(database, person)
    assert (record.end, record.source, record.output_tokens) == (end, "provider", 60)
    assert_nothing_is_reserved(database, person)


def test_a_stream_does_not_notice_that_the_database_was_restarted(
    caller: Shell, cable: Cable, database: Database, provider: Provider, person: Person
) -> None:
    with caller.stream(ANSWER) as stream:
        got = [stream.next_event()]
        cable.pull()
        got += [stream.next_event() for _ in range(5)]
        cable.put_back()
        got += [block for block in stream if block != ":"]
    assert got[-1] == DONE
    # The role, the words, the reason for its end, and the last word.
    assert len(got) == 63
    assert_paid_as_reported(database, person)
    provider.wait_for(lambda stats: stats["streams_open"] == 0)


def test_words_and_comments_go_on_and_the_last_word_comes_when_the_database_is_back(
    caller: Shell, cable: Cable, database: Database, provider: Provider, person: Person
) -> None:
    with ThreadPoolExecutor(1) as pool, caller.stream(ANSWER) as stream:
        got = [stream.next_event()]
        cable.pull()
        got += [stream.next_event() for _ in range(61)]
        provider.wait_for(lambda stats: stats["streams_open"] == 0)
        reading = pool.submit(list, stream)
        # Its settlement waits now, and whether the caller is still waiting or was told decides the moment.
        cable.put_back()
        *comments, last = reading.result(DEADLINE)
    assert set(comments) <= {":"}
    assert last == DONE or loads(last)["error"]["code"] == "service_unavailable"
    assert_paid_as_reported(database, person)


def test_a_caller_whose_settlement_waits_is_told_so_and_pays_what_was_reported(
    caller: Shell, cable: Cable, database: Database, person: Person
) -> None:
    with caller.stream(ANSWER) as stream:
        got = [stream.next_event()]
        cable.pull()
        *words, last = (block for block in stream if block != ":")
    assert len(got + words) == 62
    error = loads(last)["error"]
    assert (error["code"], error["status"]) == ("service_unavailable", 503)
    cable.put_back()
    # Nobody waits for it any more, and it is settled with the same numbers all the same.
    assert_paid_as_reported(database, person)


@LONG
def test_a_one_shot_call_is_told_so_too(
    caller: Shell, cable: Cable, database: Database, provider: Provider, person: Person
) -> None:
    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(caller.complete, ANSWER)
        provider.wait_for(lambda stats: stats["requests_open"] == 1)
        cable.pull()
        response = calling.result(DEADLINE)
    assert (response.status_code, response.json()["code"]) == (503, "service_unavailable")
    assert "Retry-After" in response.headers
    cable.put_back()
    assert_paid_as_reported(database, person)


def test_a_client_that_leaves_meanwhile_pays_what_was_delivered(
    caller: Shell, cable: Cable, database: Database, provider: Provider, person: Person
) -> None:
    with caller.stream(stand_in("tokens=100000 delay=0.02")) as stream:
        got = [stream.next_event() for _ in range(10)]
        cable.pull()
        got += [stream.next_event() for _ in range(10)]
    provider.wait_for(lambda stats: stats["streams_open"] == 0)
    cable.put_back()
    record = the_record(database, person)
    assert (record.end, record.source) == ("client_gone", "counted")
    assert record.output_tokens >= len(got) - 1
    assert_nothing_is_reserved(database, person)


@LONG
def test_no_call_begins_while_it_is_away(
    caller: Shell, cable: Cable, database: Database, provider: Provider, person: Person
) -> None:
    before = provider.stats()["requests"]
    cable.pull()
    try:
        response = caller.complete("Hello")
        assert (response.status_code, response.json()["code"]) == (503, "service_unavailable")
        assert provider.stats()["requests"] == before
    finally:
        cable.put_back()
    eventually(lambda: caller.complete("Hello").status_code == 200)


@pytest.mark.wall_time
@LONG
def test_keys_that_are_known_cost_no_wait(caller: Shell, cable: Cable) -> None:
    def status(path: str) -> tuple[int, float]:
        began = time.monotonic()
        return caller.get(path).status_code, time.monotonic() - began

    assert status("/v1/license/status")[0] == 200
    cable.pull()
    try:
        time.sleep(RELOAD_SECONDS)
        # The quickest of a few, because the machine may stand still in one of them.
        codes, seconds = zip(*(status("/.well-known/jwks.json") for _ in range(3)), strict=True)
        assert {*codes} == {200}
        assert min(seconds) < WAIT_SECONDS + SOME_SECONDS
        codes, seconds = zip(*(status("/v1/license/status") for _ in range(2)), strict=True)
        assert {*codes} == {503}
        assert min(seconds) < WAIT_SECONDS + CONNECTION_SECONDS + SOME_SECONDS
    finally:
        cable.put_back()
    eventually(lambda: status("/v1/license/status")[0] == 200)
