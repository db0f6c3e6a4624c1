"""Answers with the status 200 that cannot be read: they cost the usage at their end, else their reservation."""

import gzip
import struct
from base64 import b64decode
from collections.abc import Callable
from itertools import product
from json import dumps, loads
from threading import Event, Thread
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import orjson
import pytest

from config.platform.problems.problem import InternalError, Problem
from llmproxy.api import views
from llmproxy.api.views import _encoded
from llmproxy.calls import bodies, reading
from llmproxy.calls.bodies import Rooms
from llmproxy.calls.relay import complete, stream
from llmproxy.dialects.failures import last_usage
from llmproxy.dialects.openai import ChatCompletions
from llmproxy.dialects.openai.embeddings import Embeddings
from llmproxy.dialects.protocol import ProviderError, TooDeep, UnreadableAnswer
from llmproxy.dialects.reading import MOST_LEVELS, parse_json, parse_json_exactly
from llmproxy.models import LanguageModel
from llmproxy.requests import embeddings, messages, responses
from llmproxy.requests.call_request import CallRequest
from llmproxy.requests.chat import parse
from tests.llmproxy.targets import target
from tests.llmproxy.test_relay import Play, Script, chunk, play, plays, read, usage_chunk
from tests.pairing import each_once
from tests.standins.raw_server import CHUNKED, OK, Peer
from usage.models import UsageRecord

__all__ = ["play"]

pytestmark = pytest.mark.django_db(transaction=True)
LIMIT = 50
HELLO = [{"role": "user", "content": "hello"}]
DEEP = "[" * 1_500 + "]" * 1_500
CHAT_USAGE = '"usage": {"prompt_tokens": 9, "completion_tokens": 33}'
OTHER_USAGE = '"usage": {"input_tokens": 9, "output_tokens": 33}'
# By surface: the dialect, the request, and the beginning of an answer, up to the value of a member within.
SURFACES: dict[str, tuple[str, Callable[[], CallRequest], str, str]] = {
    "chat": (
        "openai",
        lambda: parse({"messages": HELLO, "max_tokens": LIMIT}, stream=False),
        '{"choices": [{"message": {"content": "hi", "more": %s}, "finish_reason": "stop"}]',
        CHAT_USAGE,
    ),
    "chat at Anthropic": (
        "anthropic",
        lambda: parse({"messages": HELLO, "max_tokens": LIMIT}, stream=False),
        '{"id": "a", "model": "m", "content": [{"type": "tool_use", "id": "b", "name": "c", "input": {"d": %s}}]',
        OTHER_USAGE,
    ),
    "messages": (
        "anthropic",
        lambda: messages.parse({"messages": HELLO, "max_tokens": LIMIT}, headers={}),
        '{"type": "message", "content": [{"type": "tool_use", "id": "b", "name": "c", "input": {"d": %s}}]',
        OTHER_USAGE,
    ),
    "responses": (
        "openai",
        lambda: responses.parse({"input": "hello", "max_output_tokens": LIMIT}),
        '{"object": "response", "output": [{"type": "message", "more": %s}]',
        OTHER_USAGE,
    ),
    "embeddings": (
        "openai",
        lambda: embeddings.parse({"model": "embed", "input": "hello"}),
        '{"data": [{"object": "embedding", "index": 0, "embedding": %s}]',
        '"usage": {"prompt_tokens": 9, "total_tokens": 9}',
    ),
}
BROKEN = '{"choices": [, "content": '
LARGE = '"' + "x" * (bodies.BYTES_BESIDE + LIMIT * bodies.BYTES_A_TOKEN) + '"'


def _begun(value: Any) -> str:
    return str(value)[:16]


def settled() -> UsageRecord:
    return UsageRecord.objects.get(state="settled")


@pytest.mark.parametrize(
    ("surface", "reports", "value"),
    each_once(product(SURFACES, [True, False]), [DEEP, LARGE, "[1,,2]", "nul"]),
    ids=_begun,
)
def test_a_whole_answer_costs_the_usage_at_its_end_or_its_reservation(
    play: Play, surface: str, value: str, reports: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect, request, begin, usage = SURFACES[surface]
    if surface == "embeddings":
        monkeypatch.setattr(bodies, "MAX_ANSWER", len(LARGE))
        LanguageModel.objects.create(name="embed", provider_name="embed")
    body = f"{begin % value}, {usage}}}" if reports else f"{begin % value}}}"
    with (
        play(lambda peer: peer.answer(body.encode()), request=request(), dialect=dialect) as call,
        pytest.raises(Problem) as raised,
    ):
        complete(call)
    assert raised.value.code == "provider_error"
    record = settled()
    output = (0 if surface == "embeddings" else 33) if reports else record.reserved_output
    expected = (9, output, "provider") if reports else (record.reserved_input, output, "estimated")
    assert record.end == "answer_unread"
    assert (record.input_tokens, record.output_tokens, record.source) == expected
    assert bodies.rooms.taken == 0


@pytest.mark.parametrize(
    "body",
    [
        OK + b"Content-Length: 0\r\n\r\n",
        OK + b"Content-Length: 2\r\n\r\n[]",
        OK + b"Content-Length: 4\r\n\r\nnull",
        OK + b"Content-Length: 90\r\n\r\n{",
        OK + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"cho',
        OK + b"Transfer-Encoding: chunked\r\n\r\nnone\r\n",
        OK + b"Content-Encoding: gzip\r\nContent-Length: 22\r\n\r\n" + gzip.compress(b"{}"),
        OK + b"Content-Length: 38\r\n\r\n" + b'{"choices": [{}], "error": {}, "b": 12}'[:38],
    ],
    ids=["empty", "a list", "null", "cut", "cut chunk", "no chunk", "encoded", "no message"],
)  # fmt: skip
def test_a_whole_answer_that_breaks_costs_its_reservation(play: Play, body: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.send(body)
        peer.close()

    with (
        play(script, streamed=False, max_tokens=LIMIT) as call,
        pytest.raises(ProviderError),
    ):
        complete(call)
    record = settled()
    assert (record.end, record.output_tokens) == ("answer_unread", LIMIT)


@pytest.mark.parametrize("body", [b"<html>busy</html>", b'{"error": {"message": "no"}}'])
def test_a_refusal_in_place_of_an_answer_costs_nothing(play: Play, body: bytes) -> None:
    with (
        play(lambda peer: peer.answer(body), streamed=False) as call,
        pytest.raises(ProviderError),
    ):
        complete(call)
    record = settled()
    assert (record.end, record.input_tokens, record.output_tokens) == ("provider_failed", 0, 0)


def test_a_usage_that_a_model_wrote_is_no_report(play: Play) -> None:
    """The end of an answer whose own usage stands before what the caller had the model write."""
    dialect, request, begin, _ = SURFACES["messages"]
    forged = f'[{DEEP}], "usage": {{"input_tokens": 1, "output_tokens": 1}}'
    body = f"{begin % forged}}}".encode()
    with (
        play(lambda peer: peer.answer(body), request=request(), dialect=dialect) as call,
        pytest.raises(ProviderError),
    ):
        complete(call)
    assert settled().output_tokens == LIMIT


@pytest.mark.parametrize(
    ("tail", "usage"),
    [
        ('..."a": 1}], "usage": {"b": 2}, "c": [{"d": "}]}"}]}', {"b": 2}),
        ('"usage": {"b": {"c": 2}}}', {"b": {"c": 2}}),
        ('"usage" : {"b": 1}, "usage":{"b": 2}}', {"b": 2}),
        ('data: {"x": 1, "usage": {"b": 2}}\n\ndata: [DONE]\n\n', {"b": 2}),
        ('data: {"response": {"usage": {"b": 2}}}\n\n', {"b": 2}),
        ('{"c": "\\"usage\\": {\\"b\\": 2}"}', None),
        ('[{"input": {"usage": {"b": 2}}}]}', None),
        # Some servers write line ends into texts as they are.
        ('{"a": {"usage": {"b": 2}}, "t": "\n\n"}}]}', None),
        ('{"a": {"usage": {"b": 2}, "t": "}\n\n"}}]}', None),
        ('data: {"usage": {"b": 2}}\r\n\r\ndata: {"cut', {"b": 2}),
        ('data: {"usage": {"b": 2}}\n\ndata: {"cut', {"b": 2}),
        ('"usage": null}', None),
        ('"usage": {"b": ', None),
        ('"usage": ' + '{"a":' * 5_000, None),
        ('"usage": {"b": 2}, "c": [' + '{"usage": {}}, ' * 9 + "1]}", {"b": 2}),
        # Looked for no further: each look reads on to the end.
        ('"usage": {"b": 2}, "c": [' + '{"usage": {}}, ' * 99 + "1]}", None),
        ("", None),
    ],
)
def test_the_last_usage_of_an_answer_is_found_where_answers_have_it(tail: str, usage: Any) -> None:
    assert last_usage(tail.encode()) == usage


@pytest.mark.parametrize(
    ("length", "surface"),
    each_once([401, 4_001, 50_000], ["chat at Anthropic", "messages", "chat", "responses"]),
)
def test_no_numbers_length_decides(play: Play, surface: str, length: int) -> None:
    dialect, request, begin, usage = SURFACES[surface]
    body = f"{begin % ('1' * length)}, {usage}}}".encode()
    with play(lambda peer: peer.answer(body), request=request(), dialect=dialect) as call:
        complete(call)
    assert (settled().end, settled().input_tokens) == ("done", 9)


@pytest.mark.parametrize("parse", [lambda data: parse_json(data)[0], parse_json_exactly])
def test_an_answer_of_two_hundred_levels_is_read_and_no_deeper(parse: Any) -> None:
    nested = b"[" * MOST_LEVELS + b"]" * MOST_LEVELS
    assert orjson.dumps(parse(nested)) == nested
    assert parse(b'{"a":[' + b"[]," * MOST_LEVELS + b"1]}")
    for levels in (MOST_LEVELS + 1, 1_000, 100_000):
        with pytest.raises(TooDeep):
            parse(b'{"a":' * levels + b"1" + b"}" * levels)


FIRST = chunk("one")
LAST = chunk(None)
DEEP_EVENT = b'data: {"choices": [{"delta": {"content": "a", "b": %s}}]}\n\n' % DEEP.encode()
BROKEN_EVENT = b'data: {"choices": [{"delta": {"content": \n\n'
LONG_EVENT = b"data: " + b"x" * (5 * 1024 * 1024) + b"\n\n"
LONG_STREAM = b": " + b"x" * len(LARGE) + b"\n\n"


@pytest.mark.parametrize(
    ("event", "reports", "before"),
    each_once(
        product([DEEP_EVENT, BROKEN_EVENT, LONG_EVENT, LONG_STREAM], [True, False]), [b"", FIRST]
    ),
    ids=_begun,
)
def test_a_stream_costs_the_usage_at_its_end_or_its_reservation(
    play: Play, event: bytes, before: bytes, reports: bool
) -> None:
    after = usage_chunk({"prompt_tokens": 9, "completion_tokens": 33}) if reports else b": bye\n\n"
    parts = (*filter(None, [before]), event, LAST, after, b"data: [DONE]\n\n")
    with play(plays(*parts), max_tokens=LIMIT) as call:
        if before:
            answer = read(stream(call))
            assert b"provider_error" in answer
            assert b"[DONE]" not in answer
        else:
            with pytest.raises(ProviderError):
                stream(call)
    record = settled()
    output = 33 if reports else record.reserved_output
    assert (record.end, record.output_tokens) == ("answer_unread", output)
    assert record.input_tokens == (9 if reports else record.reserved_input)


def test_a_body_without_an_answer_in_place_of_a_stream_costs_its_usage(play: Play) -> None:
    body = f'{{"choices": [], {CHAT_USAGE}}}'.encode()
    with (
        play(lambda peer: peer.answer(body), max_tokens=LIMIT) as call,
        pytest.raises(ProviderError),
    ):
        stream(call)
    assert settled().output_tokens == 33


def test_an_object_that_goes_on_without_an_end_is_given_up(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "REFUSAL_SECONDS", 0.2)

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(b'{"error": {"message": "overloaded"}}')
        peer.wait_until_gone()

    with play(script) as call, pytest.raises(ProviderError):
        stream(call)
    assert (settled().end, settled().output_tokens) == ("provider_failed", 0)


# Twenty alternatives of a token, as long as servers write them.
TOKEN = {"token": "\\ud83d\\ude00 token", "logprob": -12.345678901234567, "bytes": [240] * 16}
ENTRY = {**TOKEN, "top_logprobs": [TOKEN] * 20}


@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_within_its_limit_is_never_too_large(
    play: Play, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BYTES_BESIDE", 1_000)
    script: Script
    if streamed:
        one = {"index": 0, "delta": {"content": "word"}, "logprobs": {"content": [ENTRY]}}
        event = b"data: %s\n\n" % dumps({"choices": [{**one, "finish_reason": None}]}).encode()
        script = plays(event * LIMIT, LAST, usage_chunk(), b"data: [DONE]\n\n")
    else:
        choice = {"message": {"content": "word" * LIMIT}, "logprobs": {"content": [ENTRY] * LIMIT}}
        body = dumps(
            {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": LIMIT}}
        )
        script = lambda peer: peer.answer(body.encode())  # noqa: E731
    with play(script, streamed=streamed, max_tokens=LIMIT) as call:
        assert read(stream(call)).endswith(b"[DONE]\n\n") if streamed else complete(call)
    assert settled().end == "done"


def test_a_streamed_response_may_say_its_text_five_times(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BYTES_BESIDE", 1_000)

    def event(kind: str, **members: Any) -> bytes:
        return b"data: %s\n\n" % dumps({"type": f"response.{kind}", **members}).encode()

    place = {"output_index": 0, "content_index": 0, "item_id": "m"}
    whole = {"text": "word" * LIMIT, "logprobs": [ENTRY] * LIMIT}
    part = {"type": "output_text", "annotations": [], **whole}
    item = {"type": "message", "id": "m", "role": "assistant", "content": [part]}
    usage = {"input_tokens": 9, "output_tokens": LIMIT, "total_tokens": 9 + LIMIT}
    script = plays(
        event("output_text.delta", delta="word", logprobs=[ENTRY], **place) * LIMIT,
        event("output_text.done", **whole, **place),
        event("content_part.done", part=part, **place),
        event("output_item.done", item=item, output_index=0),
        event("completed", response={"id": "r", "output": [item], "usage": usage}),
    )
    asked = {"input": "hello", "max_output_tokens": LIMIT, "stream": True}
    with play(script, request=responses.parse(asked)) as call:
        assert b"response.completed" in read(stream(call))
    assert (settled().end, settled().output_tokens) == ("done", LIMIT)


class TestRooms:
    def test_the_large_answers_of_a_person_wait_for_each_other(self) -> None:
        rooms, ada, eve = Rooms(), uuid4(), uuid4()
        whole = bodies.MOST_OF_A_PERSON
        assert rooms.take(ada, whole, seconds=0)
        assert not rooms.take(ada, 1, seconds=0.01)
        assert rooms.take(eve, whole, seconds=0)
        assert not rooms.take(uuid4(), 1 + bodies.MOST_OF_A_PROCESS - 2 * whole, seconds=0.01)
        got = Event()
        waiting = Thread(target=lambda: rooms.take(ada, whole, seconds=60) and got.set())
        waiting.start()
        assert not got.is_set()
        rooms.give_back(ada, whole)
        waiting.join(60)
        assert got.is_set()
        rooms.give_back(ada, whole)
        rooms.give_back(eve, whole)
        assert rooms.taken == 0

    def test_a_large_answer_keeps_its_room_until_it_is_written(
        self, play: Play, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bodies, "LARGE", 1_000)
        body = dumps({"choices": [{"message": {"content": "x" * 5_000}}]}).encode()
        with play(lambda peer: peer.answer(body), streamed=False) as call:
            answer = complete(call)
            assert bodies.rooms.taken == len(body)
            parts = bodies.Parts(call, orjson.dumps(answer))
            assert loads(b"".join(parts)) == answer
            parts.close()
            parts.close()
        assert bodies.rooms.taken == 0

    @pytest.mark.parametrize("fails", ["settling", "translating", "writing"])
    def test_a_large_answer_that_fails_after_it_was_read_gives_its_room_back(
        self, play: Play, monkeypatch: pytest.MonkeyPatch, fails: str
    ) -> None:
        monkeypatch.setattr(bodies, "LARGE", 1_000)
        body = dumps({"choices": [{"message": {"content": "x" * 5_000}}]}).encode()
        with play(lambda peer: peer.answer(body), streamed=False) as call:
            if fails == "settling":
                monkeypatch.setattr(call, "has_left", Mock(side_effect=OSError))
            elif fails == "translating":
                monkeypatch.setattr(ChatCompletions, "completed", Mock(side_effect=OSError))
            elif fails == "writing":
                monkeypatch.setattr(views, "_encoded", Mock(side_effect=OSError))
            with pytest.raises(OSError if fails == "writing" else InternalError):
                views._whole(call, complete(call), {})
        assert bodies.rooms.taken == 0

    def test_a_call_that_is_cut_waits_for_no_room(
        self, play: Play, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bodies, "LARGE", 1_000)
        monkeypatch.setattr(bodies, "LOOK_SECONDS", 0.01)
        monkeypatch.setattr(bodies, "rooms", rooms := Rooms())
        body = dumps({"choices": [{"message": {"content": "x" * 5_000}}]}).encode()
        with play(lambda peer: peer.answer(body), streamed=False) as call:
            person = call.admission.caller.user_id
            assert rooms.take(person, bodies.MOST_OF_A_PERSON, seconds=0)
            call.deadline = 0.0
            with pytest.raises(Problem) as raised:
                complete(call)
        assert raised.value.code == "provider_timeout"
        assert rooms.taken == bodies.MOST_OF_A_PERSON


class TestVectors:
    NUMBERS = "[" + ", ".join(["-0.10", "1e-05", "3.0", "2"] * 20) + "]"

    def told(self, *vectors: str) -> bytes:
        items = [
            f'{{"object": "embedding", "index": {at}, "embedding": {each}}}'
            for at, each in enumerate(vectors)
        ]
        usage = '"usage": {"prompt_tokens": 4, "total_tokens": 4, "cost": 1}'
        return f'{{"data": [{", ".join(items)}], "model": "m", {usage}}}'.encode()

    def test_vectors_pass_as_bytes(self) -> None:
        text = '"' + "AAAA" * 20 + '"'
        body = self.told(self.NUMBERS, text, "[1, 2]", self.NUMBERS)
        answer, known, _ = Embeddings().answer(body, target=target())
        assert known is not None
        for model in ("ours", "a half \ud800"):
            written = _encoded(Embeddings().completed(answer, called=model, charged=None))
            assert loads(written)["data"][0]["embedding"] == loads(self.NUMBERS)
            assert loads(written)["data"][1]["embedding"] == [0.0] * 15
        written = _encoded(Embeddings().completed(answer, called="ours", charged=None))
        assert written.count(self.NUMBERS.encode()) == 2
        assert loads(written)["usage"] == {"prompt_tokens": 4, "total_tokens": 4}

    def test_vectors_of_the_other_form_are_converted(self) -> None:
        asked = embeddings.parse({"input": "a", "encoding_format": "base64"})
        answer, _, _ = Embeddings().answer(self.told(self.NUMBERS), target=target(), request=asked)
        (item,) = loads(_encoded(answer))["data"]
        packed = b64decode(item["embedding"])
        numbers = struct.unpack(f"<{len(packed) // 4}f", packed)
        assert numbers == pytest.approx(loads(self.NUMBERS))

    @pytest.mark.parametrize("value", [NUMBERS.replace("2]", "NaN]"), f"[{NUMBERS}]"])
    def test_vectors_of_an_unknown_form_are_read(self, value: str) -> None:
        answer, _, _ = Embeddings().answer(self.told(value), target=target())
        assert answer["data"][0]["embedding"][0] is not None

    def test_vectors_in_other_members_are_read(self) -> None:
        body = b'{"data": [{"embedding": 1}], "x": {"embedding": %b}}' % self.NUMBERS.encode()
        answer, _, _ = Embeddings().answer(body, target=target())
        assert answer["x"]["embedding"][:2] == [-0.1, 1e-05]

    @pytest.mark.parametrize(
        "end", ["2,]", "2,,3]", "2 3]", "--2]", "2.]", "02]", "1e]", "+2]", "1.2.3]"]
    )
    def test_malformed_numbers_of_a_vector_are_unreadable(self, end: str) -> None:
        with pytest.raises(UnreadableAnswer):
            Embeddings().answer(self.told(self.NUMBERS.replace("2]", end)), target=target())

    def test_truncated_vectors_are_unreadable(self) -> None:
        with pytest.raises(UnreadableAnswer):
            Embeddings().answer(self.told(self.NUMBERS)[:-40], target=target())
