"""A mix of calls, three in ten left in every phase: the ledger beside the books of a provider that counts its work.

`MIXED_CALLS=10000` makes as many of them, `MIXED_THINKS=300` at a provider that thinks as fast; `-s` shows the sums.
"""

import json
import os
import random
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from django.conf import settings

from tests.served.conftest import SignIn
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved
from tests.served.people import add_person
from tests.served.service import HOST, Service
from tests.served.shell import Shell, stand_in
from tests.standins.provider_process import Provider
from tests.waiting import eventually
from usage.models import UsageRecord

CALLS = int(os.environ.get("MIXED_CALLS", "300"))
# Enough that hardly anybody leaves more whole answers at once than are read on.
PEOPLE, AT_ONCE = 48, 48
# By itself a little slower than LLM_UNSEEN_TOKENS_PER_SECOND, which is to be the most that models make unseen.
THINKS = int(os.environ.get("MIXED_THINKS", "80"))
# A fast provider has made more than is charged in these: they were cut while it thought, without a report.
THOUGHT = {"left before the head", "left in silence"}
PATIENCE = 60.0
PIECE = re.compile(rb'"(content|arguments)":"(?!")')
FINISH = re.compile(rb'"finish_reason":"')
TOOL = {
    "type": "function",
    "function": {"name": "note", "parameters": {"type": "object", "properties": {"text": {}}}},
}
TEXT = (
    "the service keeps a ledger of what each person has used and says what is left while other calls are running and "
    "nobody waits for the answer of a provider that works on long after its reader has gone home"
)


class Answer:
    """An answer as it comes over a bare socket, which can be left in any way."""

    def __init__(self, shell: Shell, port: int, path: str, body: Any, mark: str) -> None:
        raw = json.dumps(body).encode()
        self.pieces = 0
        self._waiting = b""
        self._socket = socket.create_connection((HOST, port), timeout=PATIENCE)
        self._socket.sendall(
            f"POST /v1/llm/{path} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {shell.access}\r\n"
            f"X-Request-ID: {mark}\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(raw)}\r\n\r\n".encode()
            + raw
        )

    def lines(self, *, silence: float = PATIENCE) -> Iterator[bytes]:
        """To the end of the answer or the first silence; counts the pieces of the answer among them."""
        self._socket.settimeout(silence)
        while True:
            try:
                more = self._socket.recv(65536)
            except TimeoutError:
                assert silence < PATIENCE, "no answer"
                return
            if not more:
                return
            *lines, self._waiting = (self._waiting + more).split(b"\n")
            for line in lines:
                self.pieces += bool(PIECE.search(line))
                yield line

    def leave(self, *, suddenly: bool) -> None:
        if suddenly:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


Reading = Callable[[Answer, random.Random], None]


def to_the_end(answer: Answer, dice: random.Random) -> None:
    lines = answer.lines()
    assert b" 200 " in next(lines)
    for _ in lines:
        pass


def not_at_all(answer: Answer, dice: random.Random) -> None:
    time.sleep(dice.uniform(0.05, 1.5))


def some_pieces(answer: Answer, dice: random.Random) -> None:
    most = dice.randint(1, 80)
    for _ in answer.lines():
        if answer.pieces >= most:
            return


def to_a_silence(answer: Answer, dice: random.Random) -> None:
    for _ in answer.lines(silence=1.0):
        pass


def to_the_finish_reason(answer: Answer, dice: random.Random) -> None:
    next(line for line in answer.lines() if FINISH.search(line))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of call in a hundred of the mix: what is asked of the provider, and how far the caller reads."""

    name: str
    share: int
    path: str
    asks: str
    reads: Reading = to_the_end
    tools: bool = False


MIX = (
    Kind(name="stream", share=40, path="stream", asks="tokens={some} delay=0.005 first={short}"),
    Kind(name="whole", share=22, path="complete", asks="tokens={some} first={short}"),
    Kind(name="tool", share=3, path="complete", asks="first={short}", tools=True),
    Kind(name="without a report", share=3, path="stream", asks="tokens={some} usage=no"),
    Kind(
        name="broken by the provider",
        share=2,
        path="stream",
        asks="tokens=4000 delay=0.005 fault=truncate after={few}",
    ),
    Kind(
        name="whole, left before the head",
        share=6,
        path="complete",
        asks="tokens={few} first={long} thinks={thinks}",
        reads=not_at_all,
    ),
    Kind(
        name="whole, left in a tool call",
        share=1,
        path="complete",
        asks="first={long}",
        reads=not_at_all,
        tools=True,
    ),
    Kind(
        name="left before the head",
        share=5,
        path="stream",
        # So long that no report crosses with the cut.
        asks="tokens={few} first=30 thinks={thinks}",
        reads=not_at_all,
    ),
    Kind(
        name="left in silence",
        share=5,
        path="stream",
        asks="tokens=4000 delay=0.005 after={few} pause=30 thinks={thinks}",
        reads=to_a_silence,
    ),
    Kind(
        name="left in mid-stream",
        share=6,
        path="stream",
        asks="tokens=4000 delay=0.02",
        reads=some_pieces,
    ),
    Kind(
        name="left after the finish reason",
        share=4,
        path="stream",
        asks="tokens=4 delay=0.3",
        reads=to_the_finish_reason,
    ),
    Kind(
        name="left in a tool call",
        share=3,
        path="stream",
        # It ends with its prompt: long after its caller has gone.
        asks="delay=0.1",
        reads=some_pieces,
        tools=True,
    ),
)
UNSENT = {"input": 0, "output": 0, "reported": False}
LEFT = {kind.name for kind in MIX if kind.reads is not to_the_end}


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made, and the pieces that its caller has seen."""

    kind: str
    mark: str
    seen: int


def make(shell: Shell, port: int, number: int) -> Made:
    dice = random.Random(number)
    kind = dice.choices(MIX, [kind.share for kind in MIX])[0]
    mark = f"mixed-{number:06}"
    asks = kind.asks.format(
        some=dice.randint(20, 250),
        few=dice.randint(3, 90),
        short=round(dice.uniform(0, 0.3), 2),
        long=round(dice.uniform(4, 9), 2),
        thinks=THINKS,
    )
    said = " ".join(dice.choices(TEXT.split(), k=dice.randint(200 if kind.tools else 20, 400)))
    text = f"{said} {stand_in(f'{asks} mark={mark}')}"
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    if kind.tools:
        body["tools"] = [TOOL]
    answer = Answer(shell, port, kind.path, body, mark)
    kind.reads(answer, dice)
    answer.leave(suddenly=dice.random() < 0.5)
    return Made(kind.name, mark, answer.pieces)


@pytest.mark.wire
@pytest.mark.timeout(120 + CALLS // 4)
def test_the_ledger_of_mixed_calls_is_what_the_provider_counts(
    service: Service, database: Database, provider: Provider, sign_in: SignIn
) -> None:
    people = [add_person(database) for _ in range(PEOPLE)]
    shells = [sign_in(service, person) for person in people]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        made = list(
            pool.map(
                lambda number: make(shells[number % PEOPLE], service.port, number), range(CALLS)
            )
        )
    provider.wait_for(lambda stats: stats["requests_open"] == 0)

    def records() -> dict[str, UsageRecord]:
        with database.rows():
            found = UsageRecord.objects.filter(request_id__startswith="mixed-")
            return {record.request_id: record for record in found}

    eventually(lambda: all(record.end for record in records().values()))
    ledger, work = records(), provider.work()
    # A caller may have left before the service read the request.
    admitted = [call for call in made if call.mark in ledger]
    assert work.keys() <= ledger.keys()
    assert {call.kind for call in made if call.mark not in ledger} <= LEFT
    sums: dict[str, Counter[str]] = {}
    wrong: list[object] = []
    for call in admitted:
        record = ledger[call.mark]
        [books] = work.get(call.mark, [UNSENT])
        charged = (record.input_tokens, record.output_tokens)
        told = ("provider", books["input"], books["output"])
        if books["reported"] and (record.source, *charged) != told:
            wrong.append((call, record.end, record.source, charged, books))
        if record.output_tokens < call.seen:
            wrong.append((call, record.end, record.source, charged, books))
        sums.setdefault(call.kind, Counter()).update(
            calls=1,
            reported=books["reported"],
            made=books["input"] + books["output"],
            charged=sum(charged),
        )
    for kind, each in sums.items():
        print(f"{kind}: {dict(each)}")
    whole = sum(sums.values(), Counter())
    print(f"all: {dict(whole)}, left: {sum(call.kind in LEFT for call in admitted)}")
    assert wrong == []
    if THINKS > settings.LLM_UNSEEN_TOKENS_PER_SECOND:
        whole -= sum((sums[kind] for kind in THOUGHT), Counter())
    assert whole["made"] <= whole["charged"] <= 1.25 * whole["made"]
    for person in people:
        assert_nothing_is_reserved(database, person)
