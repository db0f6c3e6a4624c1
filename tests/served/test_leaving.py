"""Clients that leave without a word: the provider stops working for them, and the ledger records what was delivered."""

import time
from collections.abc import Iterator

import pytest

from tests.served.conftest import Ground, SignIn, unexpected
from tests.served.database import Database
from tests.served.ledger import (
    assert_nothing_is_reserved,
    the_record,
)
from tests.served.people import Person
from tests.served.service import Service, running_service
from tests.served.shell import Caller, Shell, as_event, chunk, sending, stand_in
from tests.standins.provider_process import Provider
from tests.waiting import eventually
from usage.models import UsageRecord

# Nothing beyond packages is needed: these only wait for long.
LONG = pytest.mark.wire


@pytest.fixture(scope="module")
def silent(ground: Ground) -> Iterator[Service]:
    """Writes no comment into a silence for longer than any test waits."""
    environ = {**ground.environ, "LLM_KEEPALIVE_SECONDS": "300"}
    with running_service(ground.folder, environ) as service:
        yield service
        assert unexpected(service.errors()) == []


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize(
    ("telling", "least"),
    [
        ("tokens=100000 delay=0.02", 5),
        # In a silence only a comment finds out.
        ("tokens=100 fault=stall after=6", 5),
    ],
    ids=["while-it-speaks", "in-a-silence"],
)
def test_a_stream_ends_at_the_provider_when_its_client_leaves(
    filling: Service,
    database: Database,
    provider: Provider,
    person: Person,
    sign_in: SignIn,
    how: str,
    telling: str,
    least: int,
) -> None:
    caller = Caller(sign_in(filling, person), filling.port, "/v1/llm/stream", stand_in(telling))
    caller.read(events=least)
    getattr(caller, how)()
    stats = provider.wait_for(lambda stats: stats["streams_open"] == 0)
    assert stats["streams_aborted"] == 1
    record = the_record(database, person)
    assert (record.end, record.source) == ("client_gone", "counted")
    # The first event carries the role alone.
    assert record.output_tokens >= least - 1
    assert record.input_tokens == record.reserved_input
    assert_nothing_is_reserved(database, person)


def test_a_client_that_leaves_before_the_first_byte_is_found_out_too(
    filling: Service, database: Database, provider: Provider, person: Person, sign_in: SignIn
) -> None:
    caller = Caller(sign_in(filling, person), filling.port, "/v1/llm/stream", stand_in("first=60"))
    provider.wait_for(lambda stats: stats["requests_open"] == 1)
    # A silence of at least a token.
    time.sleep(0.05)
    caller.close()
    provider.wait_for(lambda stats: stats["requests_open"] == 0)
    record = the_record(database, person)
    assert (record.end, record.source) == ("client_gone", "estimated")
    assert_the_silence_is_charged(record)
    assert_nothing_is_reserved(database, person)


def assert_the_silence_is_charged(record: UsageRecord, *, delivered: int = 0) -> None:
    """The provider may have made 100 tokens a second, unseen, since the call's admission at most."""
    seconds = (record.settled_at - record.opened_at).total_seconds()
    assert 0 < record.output_tokens <= delivered + 100 * seconds
    assert record.input_tokens == record.reserved_input


@pytest.mark.parametrize(
    ("path", "telling"),
    [
        pytest.param("stream", "first=60", id="stream-before", marks=LONG),
        pytest.param("stream", "fault=stall after=3", id="stream-between"),
    ],
)
def test_a_client_that_hangs_up_is_noticed_though_nothing_is_written(
    silent: Service,
    database: Database,
    provider: Provider,
    person: Person,
    sign_in: SignIn,
    path: str,
    telling: str,
) -> None:
    caller = Caller(sign_in(silent, person), silent.port, f"/v1/llm/{path}", stand_in(telling))
    provider.wait_for(lambda stats: stats["requests_open"] == 1)
    caller.close()
    provider.wait_for(lambda stats: stats["requests_open"] == 0)
    record = the_record(database, person)
    assert record.end == "client_gone"
    assert_the_silence_is_charged(record, delivered=3 if "stall" in telling else 0)
    assert_nothing_is_reserved(database, person)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_whole_answer_is_made_and_charged_after_its_client_has_left(
    service: Service,
    database: Database,
    provider: Provider,
    person: Person,
    shell: Shell,
    how: str,
) -> None:
    caller = Caller(shell, service.port, "/v1/llm/complete", stand_in("tokens=70 first=5"))
    provider.wait_for(lambda stats: stats["requests_open"] == 1)
    getattr(caller, how)()
    record = the_record(database, person)
    assert (record.end, record.source, record.output_tokens) == ("client_gone", "provider", 70)
    assert_nothing_is_reserved(database, person)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_leaves_with_the_last_words_unread_has_had_its_answer(
    service: Service,
    database: Database,
    provider: Provider,
    person: Person,
    shell: Shell,
    how: str,
) -> None:
    caller = Caller(shell, service.port, "/v1/llm/stream", stand_in("tokens=30"))
    the_record(database, person)
    getattr(caller, how)()
    record = the_record(database, person)
    assert (record.end, record.source, record.output_tokens) == ("done", "provider", 30)
    provider.wait_for(lambda stats: stats["requests_open"] == 0)
    assert_nothing_is_reserved(database, person)


def test_a_client_who_leaves_before_the_usage_pays_for_hidden_thoughts_too(
    service: Service, database: Database, provider: Provider, person: Person, shell: Shell
) -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 3005,
        "total_tokens": 3014,
        "completion_tokens_details": {"reasoning_tokens": 3000},
    }
    said = [chunk(content="Well"), chunk("stop"), {"choices": [], "usage": usage}, "[DONE]"]
    telling = sending(*map(as_event, said), directive="delay=0.3")
    caller = Caller(shell, service.port, "/v1/llm/stream", telling)
    caller.read(word=b'"finish_reason":"stop"')
    caller.close()
    record = the_record(database, person)
    assert (record.source, record.output_tokens, record.reasoning_tokens) == (
        "provider",
        3005,
        3000,
    )
    provider.wait_for(lambda stats: stats["requests_open"] == 0)
    assert_nothing_is_reserved(database, person)


def test_many_who_leave_at_once_leave_nothing_behind(
    service: Service, database: Database, provider: Provider, person: Person, shell: Shell
) -> None:
    callers = [
        Caller(shell, service.port, "/v1/llm/stream", stand_in("tokens=100000 delay=0.05"))
        for _ in range(30)
    ]
    for caller in callers:
        caller.read()
    assert shell.usage()["output"]["in_flight"] > 0
    for caller in callers:
        caller.close()
    provider.wait_for(lambda stats: stats["streams_open"] == 0)
    eventually(lambda: shell.usage()["output"]["in_flight"] == 0)
    assert_nothing_is_reserved(database, person)
    assert shell.usage()["calls"] == 30
