"""Clients that leave without a word: the provider stops working for them, and the ledger says what was delivered."""

import json
import socket
import struct

import pytest

from tests.provider import Provider
from tests.served.conftest import SignIn
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, eventually, the_record
from tests.served.people import Person
from tests.served.service import HOST, Service
from tests.served.shell import PATIENCE, Shell, asked, stand_in


class Caller:
    """A model call over a bare socket, so that it can leave in any way."""

    def __init__(self, shell: Shell, service: Service, path: str, text: str) -> None:
        body = json.dumps(asked(text)).encode()
        self._socket = socket.create_connection((HOST, service.port), timeout=PATIENCE)
        self._socket.sendall(
            f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {shell.access}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    def read(self, *, events: int = 1) -> None:
        """Returns once so many have come."""
        got = b""
        while got.count(b"chat.completion.chunk") < events:
            more = self._socket.recv(65536)
            assert more, got
            got += more

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """As a machine does that was switched off and on again."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


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
    brisk: Service,
    database: Database,
    provider: Provider,
    person: Person,
    sign_in: SignIn,
    how: str,
    telling: str,
    least: int,
) -> None:
    caller = Caller(sign_in(brisk, person), brisk, "/v1/llm/stream", stand_in(telling))
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
    brisk: Service, database: Database, provider: Provider, person: Person, sign_in: SignIn
) -> None:
    caller = Caller(sign_in(brisk, person), brisk, "/v1/llm/stream", stand_in("first=60"))
    provider.wait_for(lambda stats: stats["requests_open"] == 1)
    caller.close()
    provider.wait_for(lambda stats: stats["requests_open"] == 0)
    record = the_record(database, person)
    assert (record.end, record.output_tokens) == ("client_gone", 0)
    assert_nothing_is_reserved(database, person)


def test_a_one_shot_call_whose_client_left_is_charged_as_the_provider_reports(
    service: Service, database: Database, provider: Provider, person: Person, shell: Shell
) -> None:
    caller = Caller(shell, service, "/v1/llm/complete", stand_in("tokens=50 delay=0.01"))
    provider.wait_for(lambda stats: stats["requests_open"] == 1)
    caller.close()
    record = the_record(database, person)
    assert (record.source, record.output_tokens) == ("provider", 50)
    assert_nothing_is_reserved(database, person)


def test_many_who_leave_at_once_leave_nothing_behind(
    service: Service, database: Database, provider: Provider, person: Person, shell: Shell
) -> None:
    callers = [
        Caller(shell, service, "/v1/llm/stream", stand_in("tokens=100000 delay=0.05"))
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
