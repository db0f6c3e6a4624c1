"""The room of a large answer is as large as its body, and goes back whatever becomes of it."""

from json import dumps, loads
from threading import Thread
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest

from config.platform.problems.problem import Problem
from llmproxy.api import views
from llmproxy.calls import bodies, failover
from llmproxy.calls.bodies import Rooms
from llmproxy.calls.relay import complete, stream
from llmproxy.dialects.openai.embeddings import Embeddings
from llmproxy.models import LanguageModel
from llmproxy.requests import embeddings, messages, responses
from tests.llmproxy.test_relay import SAID, Play, play, plays, read
from tests.llmproxy.test_unread import settled
from tests.pairing import each_once
from tests.standins.raw_server import CHUNKED, Peer
from tests.waiting import eventually

__all__ = ["play"]

pytestmark = pytest.mark.django_db(transaction=True)
TEXT = "x" * 5_000
MESSAGE = {
    "type": "message",
    "content": [{"type": "text", "text": TEXT}],
    "stop_reason": "end_turn",
}
ITEM = {"type": "message", "id": "i", "content": [{"type": "output_text", "text": "hi"}]}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "LARGE", 1_000)


def in_chunks(body: bytes) -> Any:
    """An answer whose length its head does not say."""

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        for at in range(0, len(body), 1_000):
            peer.chunk(body[at : at + 1_000])
        peer.chunk(b"")

    return script


def test_a_room_is_no_larger_than_its_body(play: Play) -> None:
    """Two people with an embedding each would else have all of a process for as long as they read."""
    LanguageModel.objects.create(name="embed", provider_name="embed")
    body = b'{"data": [{"embedding": [%b]}]}' % b", ".join([b"0.125"] * 1_000)
    request = embeddings.parse({"model": "embed", "input": "hello"})
    with play(in_chunks(body), request=request) as call:
        answer = complete(call)
        assert bodies.rooms.taken == len(body)
        written = b"".join(response := views._whole(call, answer, {}))
        assert len(loads(written)["data"][0]["embedding"]) == 1_000
        response.close()
    assert bodies.rooms.taken == 0


def test_an_answer_that_cannot_be_written_keeps_no_room(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(answer: object) -> bytes:
        raise orjson.JSONEncodeError

    monkeypatch.setattr(views, "_encoded", fail)
    body = dumps({"choices": [{"message": {"content": TEXT}}]}).encode()
    with play(lambda peer: peer.answer(body), streamed=False) as call:
        answer = complete(call)
        with pytest.raises(orjson.JSONEncodeError):
            views._whole(call, answer, {})
    assert bodies.rooms.taken == 0


def test_an_answer_that_cannot_be_completed_keeps_no_room(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller hears that it was paid, and so of no reason to ask again."""

    def fail(*_: object, **__: object) -> None:
        raise KeyError

    monkeypatch.setattr(Embeddings, "completed", fail)
    LanguageModel.objects.create(name="embed", provider_name="embed")
    body = b'{"data": [{"embedding": [%b]}]}' % b", ".join([b"0.125"] * 1_000)
    request = embeddings.parse({"model": "embed", "input": "hello"})
    with (
        play(lambda peer: peer.answer(body), request=request) as call,
        pytest.raises(Problem) as raised,
    ):
        complete(call)
    assert raised.value.code == "internal_error"
    assert call.advice() == {"x-should-retry": "false"}
    assert (bodies.rooms.taken, settled().end) == (0, "done")


@pytest.mark.parametrize("usage", ["many", 12, [{"input_tokens": 9}], True])
def test_a_usage_that_is_no_object_is_none(play: Play, usage: Any) -> None:
    body = dumps({**MESSAGE, "usage": usage}).encode()
    request = messages.parse({"messages": SAID, "max_tokens": 50}, headers={})
    with play(lambda peer: peer.answer(body), request=request, dialect="anthropic") as call:
        assert complete(call)["usage"]["output_tokens"] == settled().output_tokens
        call.give_back_room()


@pytest.mark.parametrize(
    ("details", "name", "streamed"),
    each_once(
        ["many", 12, [{"cached_tokens": 9}], True],
        ["input_tokens_details", "output_tokens_details"],
        [True, False],
    ),
)
def test_details_of_a_usage_that_are_no_object_are_none(
    play: Play, streamed: bool, name: str, details: Any
) -> None:
    usage = {"input_tokens": 9, "output_tokens": 3, name: details}
    response = {"id": "r", "object": "response", "output": [ITEM], "usage": usage}
    request = responses.parse({"input": "hello", "stream": streamed})
    event = dumps({"type": "response.completed", "response": response}).encode()
    whole = dumps(response).encode()
    script = plays(b"data: %b\n\n" % event) if streamed else lambda peer: peer.answer(whole)
    with play(script, request=request) as call:
        answer = read(stream(call)) if streamed else complete(call)
    assert b"response.completed" in answer if streamed else answer["usage"]["total_tokens"] == 12
    assert (settled().end, settled().output_tokens) == ("done", 3)


def test_no_room_is_no_silence_of_the_provider(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its route would cool for all people by what one of them does not read."""
    noted: list[object] = []
    monkeypatch.setattr(failover.health, "note", lambda *given, **_: noted.append(given))
    body = dumps({"choices": [{"message": {"content": TEXT}}]}).encode()
    with play(lambda peer: peer.answer(body), streamed=False) as call:

        class Full(Rooms):
            def take(self, person: UUID, size: int, *, seconds: float) -> bool:
                call.deadline = 0.0
                return False

        monkeypatch.setattr(bodies, "rooms", Full())
        with pytest.raises(Problem) as raised:
            complete(call)
    assert (raised.value.code, settled().end) == ("provider_timeout", "timeout")
    assert noted == []


def test_a_slow_caller_gives_way_once_others_wait(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "rooms", rooms := Rooms())
    monkeypatch.setattr(bodies, "SLOW_SECONDS", 0.0)
    # As if an hour had gone by since the beginning, for a caller that took one part.
    monkeypatch.setattr(bodies, "LEAST_A_SECOND", 10**12)
    monkeypatch.setattr(bodies, "PART", 1_000)
    body = dumps({"choices": [{"message": {"content": TEXT}}]}).encode()
    with play(lambda peer: peer.answer(body), streamed=False) as call:
        response = views._whole(call, complete(call), {})
        parts = iter(response)
        next(parts)
        next(parts)
        whole = bodies.MOST_OF_A_PERSON
        assert rooms.take(uuid4(), whole, seconds=0)
        waiting = Thread(target=rooms.take, args=(uuid4(), whole), kwargs={"seconds": 60})
        waiting.start()
        eventually(lambda: rooms.are_wanted)
        with pytest.raises(ConnectionResetError):
            next(parts)
        response.close()
        waiting.join(60)
    assert rooms.taken == 2 * whole
