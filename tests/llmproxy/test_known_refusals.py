"""Members that a model has refused are not sent again for a while (``refused_members.ndjson``).

``said`` are the words of a refusal to a call with the members ``asked``, which then goes on without those that are
``gone``; ``then`` are the members of a call that follows and those that it goes without, null where it is refused too.
``of`` is the public report (owner/repository#number).
"""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from llmproxy.calls.relay import complete, stream
from llmproxy.catalogue import known_refusals
from llmproxy.dialects.model_rules import Refused
from llmproxy.dialects.protocol import ProviderRejected
from llmproxy.requests.call_request import Surface
from tests.llmproxy.targets import target
from tests.llmproxy.test_failover import Routed, answers, routed
from tests.llmproxy.test_relay import read
from tests.pairing import each_once
from tests.standins.raw_server import Peer

CHAT = Surface.CHAT

__all__ = ["routed"]

pytestmark = pytest.mark.django_db(transaction=True)
ROWS = [
    json.loads(line)
    for line in Path(__file__).with_name("refused_members.ndjson").read_text().split("\n")
    if line
]


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    known_refusals._known.clear()
    yield
    known_refusals._known.clear()


class Refusing:
    """A provider that refuses calls with all of these members, in these words, and answers others."""

    def __init__(self, said: str, names: list[str], *, beside: list[str] | None = None) -> None:
        self._body = json.dumps({"error": {"message": said}}).encode()
        self._names = [*names, *(beside or ())]
        self.refused = 0

    def __call__(self, peer: Peer, request: bytes) -> None:
        if all(b'"%b"' % name.encode() in request for name in self._names):
            self.refused += 1
            head = b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n%b"
            peer.send(head % (len(self._body), self._body))
        else:
            answers("Hi")(peer, request)


def ask(routed: Routed, now: datetime, *, streamed: bool, **members: Any) -> list[str]:
    """The members that a call was told to go without."""
    call = routed.admit(streamed=streamed, **members)
    read(stream(call)) if streamed else complete(call)
    dropped = call.remaining(now=now).get("X-Dropped-Members", "")
    return dropped.split(", ") if dropped else []


@pytest.mark.parametrize(
    ("row", "streamed"), each_once(ROWS, [True, False]), ids=lambda value: str(value)[:40]
)
def test_a_refusal_is_paid_once(
    routed: Routed, now: datetime, row: dict[str, Any], streamed: bool
) -> None:
    beside = [each for each in row["asked"] if each not in row["gone"]]
    provider = Refusing(row["said"], row["gone"], beside=beside)
    routed.add(provider)
    assert ask(routed, now, streamed=streamed, **row["asked"]) == row["gone"]
    assert provider.refused == 1
    if row["then"] is None:
        assert ask(routed, now, streamed=streamed, **row["asked"]) == row["gone"]
        assert provider.refused == 2
    else:
        members, gone = row["then"]
        assert ask(routed, now, streamed=streamed, **members) == gone
        assert ask(routed, now, streamed=streamed, **row["asked"]) == row["gone"]
        assert provider.refused == 1
    # Calls without it are told of nothing.
    assert ask(routed, now, streamed=streamed) == []


def test_a_refusal_that_persists_without_the_member_is_not_remembered(routed: Routed) -> None:
    """The words of a refusal may only repeat a caller's text."""
    provider = Refusing("`temperature` is deprecated for this model.", [])
    routed.add(provider)
    for _ in range(2):
        with pytest.raises(ProviderRejected):
            routed.ask(streamed=False, temperature=0.2)
    assert provider.refused == 4
    assert known_refusals._known == {}


def test_a_refusal_is_forgotten_after_a_while_and_there_are_not_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(known_refusals.time, "monotonic", lambda: clock[0])
    refused = Refused("temperature")
    one = target()._replace(drops=frozenset({refused}))
    known_refusals.note_answer(one, CHAT)
    after = one._replace(drops=frozenset())
    assert known_refusals.refused_by(after, CHAT) == {refused}
    # Another model, another provider, and another address of it.
    others = ({"model": "another"}, {"provider": "another"}, {"base_url": "http://another.test"})
    for other in others:
        assert known_refusals.refused_by(after._replace(**other), CHAT) == frozenset()
    # Another surface has other members of the same name.
    assert known_refusals.refused_by(after, Surface.RESPONSES) == frozenset()
    clock[0] = known_refusals.SECONDS
    assert known_refusals.refused_by(after, CHAT) == frozenset()
    for number in range(known_refusals.MOST + 5):
        known_refusals.note_answer(one._replace(model=f"model-{number}"), CHAT)
    assert len(known_refusals._known) == known_refusals.MOST
