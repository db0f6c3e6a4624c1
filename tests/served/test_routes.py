"""Two providers behind the real service: one dies, refuses, hangs or breaks, and calls go on to the other.

``FAILOVER_STREAMS`` is the number of streams that run while a provider is killed.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from json import loads
from pathlib import Path
from threading import Event

import pytest

from llmproxy.catalogue.readiness import COOL_SECONDS
from llmproxy.models import LanguageModel, Provider, Route
from tests.served.conftest import Ground, SignIn
from tests.served.crowd import all_at_once
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of, the_record
from tests.served.people import Person, add_person
from tests.served.service import WORKERS, Service, running_service
from tests.served.shell import DONE, Shell, stand_in, text_of
from tests.standins import raw_server
from tests.standins.provider_process import running_provider
from tests.standins.raw_server import CHUNKED, Peer
from tests.waiting import eventually

STREAMS = int(os.environ.get("FAILOVER_STREAMS", "150"))
# Of a first provider that is silent; any other is waited for.
READ_SECONDS = 2
# As the kernel writes it.
ESTABLISHED = "01"
MODEL = "stand-in-small"


def add_model(database: Database, name: str, first: str, *, read_timeout: int) -> None:
    """A model whose first route is to a provider at this address, and whose second is to the stand-in."""
    with database.rows():
        model = LanguageModel.objects.create(name=name, provider_name=MODEL)
        default = Provider.objects.get(name=Provider.DEFAULT)
        provider = Provider(name=name, base_url=first, read_timeout=read_timeout)
        provider.seal("api_key", b"its-key")
        provider.save()
        for order, each in enumerate((provider, default)):
            Route.objects.create(model=model, provider=each, provider_name=MODEL, order=order)


@pytest.fixture(scope="module")
def routed(ground: Ground) -> Iterator[Service]:
    """A service with little patience and two processes."""
    own = {
        "LLM_KEEPALIVE_SECONDS": "5",
        "LLM_READ_TIMEOUT": "200",
        "LLM_MAX_SECONDS": "400",
    }
    with running_service(ground.folder, {**ground.environ, **own}) as service:
        yield service
        assert service.errors() == []


@dataclass
class First:
    """The provider that a model's first route leads to. It does what the test sets."""

    act: Callable[[Peer], None]
    patience: int = 200
    asked: int = 0
    gone: Event = field(default_factory=Event)

    def play(self, peer: Peer) -> None:
        while peer.sock.fileno() != -1 and peer.request():
            self.asked += 1
            self.act(peer)


def refuse(status: int, *headers: bytes) -> Callable[[Peer], None]:
    head = b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n" % status
    return lambda peer: peer.send(head + b"".join(each + b"\r\n" for each in headers) + b"\r\n")


def says(peer: Peer) -> None:
    peer.send(CHUNKED)
    choice = '{"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}'
    for delta, finish in (('{"content":"first"}', "null"), ("{}", '"stop"')):
        peer.chunk(f"data: {choice % (delta, finish)}\n\n".encode())
    peer.chunk(b"data: [DONE]\n\n")
    peer.chunk(b"")


def breaks(peer: Peer) -> None:
    peer.send(CHUNKED)
    time.sleep(0.2)
    peer.reset()


_made = Counter[str]()


@pytest.fixture
def ask(
    routed: Service, database: Database, person: Person, sign_in: SignIn
) -> Iterator[Callable[[First], Callable[..., tuple[int, str]]]]:
    """Makes a model with this first provider; the result calls it, by another shell if one is given.

    It returns the status, and the text or the code of the problem.
    """
    providers: list[raw_server.Provider] = []
    shell = sign_in(routed, person)

    def asking(first: First) -> Callable[[], tuple[int, str]]:
        provider = raw_server.Provider(first.play, None)
        providers.append(provider)
        _made["model"] += 1
        name = f"routed-{_made['model']}"
        address = f"http://127.0.0.1:{provider.port}/v1"
        add_model(database, name, address, read_timeout=first.patience)
        return lambda by=shell: said(by, name)

    yield asking
    for each in providers:
        each.stop()
        assert each.errors == []


def said(shell: Shell, model: str) -> tuple[int, str]:
    with shell.stream("Hello", model=model) as stream:
        if stream.status != 200:
            return stream.status, stream.problem()["code"]
        events = [each for each in stream if each != ":"]
    if events[-1] != DONE:
        return 200, loads(events[-1])["error"]["code"]
    return 200, text_of(events)


@pytest.mark.parametrize(
    ("act", "is_left"),
    [
        (refuse(500), False),
        (refuse(429, b"Retry-After: 60"), False),
        (lambda peer: (time.sleep(0.2), peer.reset())[0], True),
        (Peer.wait_until_gone, True),
    ],
    ids=["500", "429", "reset", "silence"],
)
def test_a_call_goes_on_to_the_other_provider(
    ask, database: Database, person: Person, act: Callable[[Peer], None], is_left: bool
) -> None:
    silent = act is Peer.wait_until_gone
    status, text = ask(First(act, READ_SECONDS) if silent else First(act))()
    assert (status, text != "first") == (200, True)
    record = the_record(database, person)
    assert (record.provider, record.end, record.source) == ("default", "done", "provider")
    assert len(record.abandoned or ()) == is_left
    assert_nothing_is_reserved(database, person)


def test_an_answer_that_breaks_after_its_head_does_not_go_on(
    ask, database: Database, person: Person
) -> None:
    assert ask(First(breaks))() == (502, "provider_error")
    record = the_record(database, person)
    assert (record.provider.startswith("routed-"), record.end) == (True, "provider_failed")


@pytest.mark.wall_time
def test_a_wait_that_a_provider_asks_for_holds_in_all_processes(ask) -> None:
    first = First(refuse(429, b"Retry-After: 3"))
    again = ask(first)
    began = time.monotonic()
    for _ in range(12):
        assert again()[0] == 200
    # Each of the two processes reads of it within a second.
    waits = 1 + int((time.monotonic() - began) / 3)
    assert first.asked <= WORKERS * waits
    first.act = says
    eventually(lambda: again() == (200, "first"))


@pytest.mark.wall_time
def test_a_failing_provider_cools_down_for_all_processes(ask) -> None:
    first = First(refuse(503))
    again = ask(first)
    began = time.monotonic()
    for _ in range(20):
        assert again()[0] == 200
    # Two processes notice three failures each at the most, and one reads of those of the other.
    waits = 1 + int((time.monotonic() - began) / COOL_SECONDS)
    assert first.asked <= 3 * WORKERS * waits


def test_silent_streams_of_one_person_send_nobody_else_to_another_provider(
    ask, routed: Service, database: Database, sign_in: SignIn
) -> None:
    first = First(Peer.wait_until_gone, READ_SECONDS)
    again = ask(first)
    other = sign_in(routed, add_person(database))
    assert [status for status, _ in all_at_once(8, lambda _: again())] == [200] * 8
    first.act = says
    assert [again(other) for _ in range(6)] == [(200, "first")] * 6


@pytest.mark.wire
@pytest.mark.timeout(600)
def test_streams_that_have_not_begun_survive_the_death_of_a_provider(
    routed: Service, database: Database, sign_in: SignIn
) -> None:
    people = [add_person(database) for _ in range(10)]
    shells = [sign_in(routed, person) for person in people]
    begun, waiting = STREAMS // 2, STREAMS - STREAMS // 2
    with running_provider() as dying:
        add_model(database, "dying", dying.base_url, read_timeout=200)
        is_frozen, is_dead = Event(), Event()
        heard: list[int] = []

        def end_it() -> None:
            """Freezes the provider once half of them have begun, and kills it once the others wait."""
            time.sleep(0.1)
            if not is_frozen.is_set() and len(heard) == begun:
                dying.process.send_signal(signal.SIGSTOP)
                is_frozen.set()
            elif is_frozen.is_set() and not is_dead.is_set() and _unread(dying.port) >= waiting:
                dying.kill()
                is_dead.set()

        def run(number: int) -> tuple[bool, str]:
            waits = number < waiting
            if waits:
                assert is_frozen.wait(300)
            # They come one after another: this machine admits them and plays their shells as well.
            time.sleep(number % waiting / 50)
            directive = "tokens=3" if waits else "tokens=900 delay=1"
            with shells[number % 10].stream(stand_in(directive), model="dying") as stream:
                assert stream.status == 200
                if not waits:
                    stream.next_event()
                    heard.append(number)
                events = [each for each in stream if each != ":"]
            return waits, "whole" if events[-1] == DONE else loads(events[-1])["error"]["code"]

        ends = Counter(all_at_once(STREAMS, run, meanwhile=end_it))
    assert ends == {(True, "whole"): waiting, (False, "provider_error"): begun}
    eventually(lambda: all(each.end for whose in people for each in records_of(database, whose)))
    records = [each for whose in people for each in records_of(database, whose)]
    assert Counter((each.provider, each.end) for each in records) == {
        ("default", "done"): waiting,
        ("dying", "provider_failed"): begun,
    }
    abandoned = [attempt for each in records for attempt in each.abandoned or ()]
    assert Counter(each["provider"] for each in abandoned) == {"dying": waiting}
    for whose in people:
        assert_nothing_is_reserved(database, whose)


def _unread(port: int) -> int:
    """Counts the connections to a port of this machine with unread data."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    queues = [row[4] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == ESTABLISHED]
    return sum(not each.endswith(":00000000") for each in queues)
