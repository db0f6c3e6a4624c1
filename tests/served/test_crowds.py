"""Caps under a crowd: two hundred calls at the same moment, of one person and of fifty, to several processes.

Everybody's calls overlap, because the provider answers none before all have been admitted or refused. So it is
known how many there is room for, and exactly so many must be let in.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from json import dumps, loads

import pytest

from tests.served.conftest import Ground, SignIn
from tests.served.crowd import all_at_once
from tests.served.database import Database
from tests.served.ledger import (
    assert_nothing_is_reserved,
    counters,
    records_of,
    sums,
)
from tests.served.people import Person, add_person
from tests.served.service import Service, running_service
from tests.served.shell import DONE, Shell
from tests.standins.raw_server import CHUNKED, GENEROUS, OK, Peer, Provider
from tests.waiting import eventually
from usage.models import MonthlyUsage

pytestmark = pytest.mark.wire

CALLS = 200
PROCESSES = 3
# Each call asks for this many tokens, and uses all it is granted.
OUTPUT = 60


class Gate:
    """A provider that answers once so many callers together are with it or have been refused."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.refused: list[str] = []
        self.let_in = 0
        self.expected = 0
        self._lock = threading.Lock()
        self.provider = Provider(self._answer, None)

    def close_for(self, expected: int) -> None:
        self.is_open.clear()
        self.refused, self.let_in, self.expected = [], 0, expected

    def refuse(self, code: str) -> None:
        with self._lock:
            self.refused.append(code)
            self._count()

    def _answer(self, peer: Peer) -> None:
        body = loads(peer.request().partition(b"\r\n\r\n")[2])
        with self._lock:
            self.let_in += 1
            self._count()
        assert self.is_open.wait(6 * GENEROUS)
        granted = min(OUTPUT, body["max_tokens"])
        usage = {"prompt_tokens": 9, "completion_tokens": granted, "total_tokens": 9 + granted}
        if body.get("stream"):
            _stream(peer, usage)
        else:
            message = {"role": "assistant", "content": "all at once"}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            whole = dumps({"object": "chat.completion", "choices": choices, "usage": usage})
            peer.send(OK + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(whole))
            peer.send(whole.encode())
        peer.close()

    def _count(self) -> None:
        if self.let_in + len(self.refused) >= self.expected:
            self.is_open.set()


def _stream(peer: Peer, usage: dict[str, int]) -> None:
    peer.send(CHUNKED)
    for delta, finish in (({"content": "one by one"}, None), ({}, "stop")):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        peer.chunk(b"data: %s\n\n" % dumps({"choices": [choice]}).encode())
    peer.chunk(b"data: %s\n\n" % dumps({"choices": [], "usage": usage}).encode())
    peer.chunk(b"data: [DONE]\n\n")
    peer.chunk(b"")


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.is_open.set()
    gate.provider.stop()
    assert gate.provider.errors == []


@pytest.fixture(scope="module")
def crowded(ground: Ground, gate: Gate) -> Iterator[Service]:
    own = {
        "WEB_WORKERS": str(PROCESSES),
        "LLM_KEEPALIVE_SECONDS": "30",
        "LLM_BASE_URL": f"http://127.0.0.1:{gate.provider.port}/v1",
        "LLM_PROVIDER": "openai",
    }
    with running_service(ground.folder, {**ground.environ, **own}) as service:
        yield service
        assert service.errors() == []


def test_two_hundred_calls_of_one_person_are_let_in_as_far_as_there_is_room(
    crowded: Service, database: Database, gate: Gate, sign_in: SignIn
) -> None:
    # Room for a hundred, and one that is cut to what is left.
    person = add_person(database, {"monthly_output": 100 * OUTPUT + 30})
    shell = sign_in(crowded, person)
    gate.close_for(CALLS)
    codes = Counter(
        all_at_once(
            CALLS, lambda number: _call(gate, shell, number), meanwhile=_within(database, person)
        )
    )
    assert codes == {"": 101, "cap_reserved": CALLS - 101}
    _assert_all_is_spent(database, person, calls=101, output=100 * OUTPUT + 30)
    # A later call is refused, and is told until when.
    assert _call(gate, shell, 0) == "monthly_cap_exceeded"
    assert gate.let_in == 101


def test_two_hundred_calls_of_fifty_people_each_get_what_is_theirs(
    crowded: Service, database: Database, gate: Gate, sign_in: SignIn
) -> None:
    people = [add_person(database, {"monthly_output": 3 * OUTPUT}) for _ in range(50)]
    shells = [sign_in(crowded, person) for person in people]
    gate.close_for(CALLS)
    calls = all_at_once(
        CALLS, lambda number: (number % 50, _call(gate, shells[number % 50], number))
    )
    for at, person in enumerate(people):
        assert Counter(code for whose, code in calls if whose == at) == {"": 3, "cap_reserved": 1}
        _assert_all_is_spent(database, person, calls=3, output=3 * OUTPUT)
    assert gate.let_in == 150


def test_the_first_calls_of_a_day_and_of_every_kind_of_cap_are_held_too(
    crowded: Service, database: Database, gate: Gate, sign_in: SignIn
) -> None:
    probe = add_person(database)
    gate.close_for(1)
    assert _call(gate, sign_in(crowded, probe), 1) == ""
    (record,) = records_of(database, probe)
    person = add_person(
        database,
        {
            "monthly_input": 45 * record.reserved_input,
            "daily": 40 * (record.reserved_input + OUTPUT),
            "monthly_output": 50 * OUTPUT,
        },
    )
    shell = sign_in(crowded, person)
    gate.close_for(CALLS)
    codes = Counter(all_at_once(CALLS, lambda number: _call(gate, shell, number)))
    assert codes == {"": 40, "cap_reserved": CALLS - 40}
    with database.rows():
        assert sums(person.id)["output_used"] == 40 * OUTPUT
    assert_nothing_is_reserved(database, person)


def _call(gate: Gate, shell: Shell, number: int) -> str:
    """Every other one streamed: the code of its refusal, or an empty one after its whole answer."""
    if number % 2:
        response = shell.complete("All of us", max_tokens=OUTPUT)
        code: str = response.json().get("code", "")
    else:
        code = _streamed(shell)
    if code:
        gate.refuse(code)
    return code


def _streamed(shell: Shell) -> str:
    with shell.stream("All of us", max_tokens=OUTPUT) as stream:
        if stream.status != 200:
            code: str = stream.problem()["code"]
            return code
        *chunks, done = stream
    assert done == DONE, done
    assert len(chunks) == 2
    return ""


def _within(database: Database, person: Person) -> Callable[[], None]:
    """Looks whether ledger and totals agree at this moment, and the cap holds."""

    def look() -> None:
        with database.snapshot():
            if not MonthlyUsage.objects.filter(user_id=person.id).exists():
                return
            summed, counted = sums(person.id), counters(person.id)
        assert {name: counted[name] for name in summed} == summed
        assert summed["output_used"] + summed["output_reserved"] <= 100 * OUTPUT + 30

    return look


def _assert_all_is_spent(database: Database, person: Person, *, calls: int, output: int) -> None:
    eventually(lambda: all(record.end for record in records_of(database, person)))
    records = records_of(database, person)
    assert len(records) == calls
    assert {(record.end, record.source) for record in records} == {("done", "provider")}
    assert sum(record.output_tokens for record in records) == output
    assert_nothing_is_reserved(database, person)
