"""A relay on a provider of bare sockets: shapes that the stand-in does not have."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from json import dumps, loads
from threading import Event
from typing import Any
from unittest import mock

import httpx
import openai
import pytest
from django.core.cache import cache

from accounts.models import Session, User
from accounts.sessions.authentication import AccessRevoked
from accounts.sessions.sign_in import TokenPair
from config.platform.db.connections import release_connection
from config.platform.http.exchange import Exchange
from config.platform.http.transfer import Head
from config.platform.problems.problem import Problem, ServiceUnavailable
from licensing.callers import load_caller
from llmproxy.api.views import _streamed
from llmproxy.calls import reading, watch
from llmproxy.calls.call import Call
from llmproxy.calls.relay import Stream, complete, stream
from llmproxy.calls.stop import StopReason
from llmproxy.dialects.chat_answers import DONE
from llmproxy.dialects.protocol import ProviderError, ProviderRejected, ProviderUnavailable
from llmproxy.models import LanguageModel
from llmproxy.requests import embeddings, messages, responses
from llmproxy.requests.call_request import CallRequest
from llmproxy.requests.chat import parse
from tests.llmproxy.calling import admit
from tests.standins.raw_server import CHUNKED, GENEROUS, OK, Peer, Provider
from tests.waiting import eventually
from usage.models import UsageRecord

pytestmark = pytest.mark.django_db(transaction=True)
Play = Callable[..., AbstractContextManager[Call]]
Script = Callable[[Peer], None]
USAGE = {"prompt_tokens": 9, "completion_tokens": 3005}


def chunk(text: str | None, **members: object) -> bytes:
    delta = {} if text is None else {"content": text}
    finish = None if text else "stop"
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: %s\n\n" % dumps({"choices": choices, **members}).encode()


@pytest.fixture
def play(pair: TokenPair, user: User, now: datetime, settings) -> Iterator[Play]:
    """A call to a provider that plays this script; its connection has been closed by the end."""
    caller = load_caller(user_id=user.pk, session_id=Session.objects.get().pk)
    assert caller is not None

    @contextmanager
    def played(
        script: Callable[[Peer], None],
        *,
        streamed: bool = True,
        request: CallRequest | None = None,
        dialect: str = "openai",
        **members: object,
    ) -> Iterator[Call]:
        provider = Provider(lambda peer: (peer.request(), script(peer))[1], None)
        settings.LLM_BASE_URL = f"http://127.0.0.1:{provider.port}/v1"
        settings.LLM_PROVIDER = dialect
        asked = {"messages": [{"role": "user", "content": "hello"}], **members}
        request = request or parse(asked, stream=streamed)
        try:
            yield admit(caller=caller, request=request, request_id="", now=now)
            assert provider.errors == []
        finally:
            provider.stop()

    yield played
    watch._calls.clear()
    cache.clear()


def usage_chunk(usage: object = None, **members: object) -> bytes:
    return b"data: %s\n\n" % dumps({"choices": [], "usage": usage or USAGE, **members}).encode()


def plays(*parts: bytes) -> Script:
    """All of a stream, each part by itself."""

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        for part in (*parts, b""):
            peer.chunk(part)

    return script


def chunks_in(answer: bytes) -> list[dict[str, Any]]:
    events = answer.removesuffix(DONE).split(b"\n\n")
    return [loads(each[6:]) for each in events if each.startswith(b"data: ")]


def read(answer: Stream) -> bytes:
    try:
        return b"".join(answer)
    finally:
        answer.close()


@pytest.mark.parametrize("kind", [b"text/html", b"text/event-stream", b"application/json"])
@pytest.mark.parametrize("body", [b"<html>Sorry</html>", b'\n{"error": {"message": "no"}}'])
def test_an_answer_that_is_no_stream_fails_before_the_first_byte(
    play: Play, kind: bytes, body: bytes
) -> None:
    def script(peer: Peer) -> None:
        head = OK + b"Content-Type: %s\r\nContent-Length: %d\r\n\r\n"
        peer.send(head % (kind, len(body)) + body)

    with play(script) as call, pytest.raises(ProviderError):
        stream(call)
    record = UsageRecord.objects.get()
    assert (record.end, record.output_tokens) == ("provider_failed", 0)


BUSY = {"error": {"message": "Busy.", "code": 429, "retry_after": 7}}
BUSY_EVENT = b"data: %s\n\n" % dumps(BUSY).encode()
ROLE = (
    b'data: {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": null}]}\n\n'
)


@pytest.mark.parametrize(
    "parts",
    [
        [BUSY_EVENT],
        [BUSY_EVENT[:9], BUSY_EVENT[9:], DONE],
        [b": waiting\n\n", b": still waiting\n\n" + BUSY_EVENT],
        [b'data: {"choices": [], "prompt_filter_results": []}\n\n', BUSY_EVENT],
        [b"data: " + dumps({"object": "error", **BUSY["error"]}).encode() + b"\n\n"],
    ],
)
def test_an_error_as_the_first_event_is_a_refusal_that_costs_nothing(
    play: Play, parts: list[bytes]
) -> None:
    with play(plays(*parts)) as call, pytest.raises(ProviderUnavailable) as caught:
        stream(call)
    assert caught.value.headers == {"Retry-After": "7"}
    record = UsageRecord.objects.get()
    assert (record.end, record.input_tokens, record.output_tokens) == ("provider_failed", 0, 0)


SAID = [{"role": "user", "content": "hello"}]
SURFACES: dict[str, tuple[str, CallRequest]] = {
    "chat": ("openai", parse({"messages": SAID}, stream=False)),
    "chat at Anthropic": ("anthropic", parse({"messages": SAID}, stream=False)),
    "responses": ("openai", responses.parse({"input": "hello"})),
    "embeddings": ("openai", embeddings.parse({"model": "embed", "input": "hello"})),
    "messages": ("anthropic", messages.parse({"messages": SAID, "max_tokens": 9}, headers={})),
}
REFUSALS = {
    "busy": (dumps(BUSY).encode(), ProviderUnavailable),
    "of the request": (b'{"error": {"message": "no", "code": 400}}', ProviderRejected),
    "failed": (b'{"error": {"message": "no"}}', ProviderError),
    "vLLM": (b'{"object": "error", "message": "no", "code": 400}', ProviderRejected),
    "Anthropic": (b'{"type": "error", "error": {"type": "overloaded_error"}}', ProviderUnavailable),
    "page": (b"\n<html>Sorry</html>", ProviderError),
}


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("surface", SURFACES)
def test_an_error_in_place_of_a_whole_answer_is_a_refusal_that_costs_nothing(
    play: Play, surface: str, refusal: str
) -> None:
    LanguageModel.objects.create(name="embed", provider_name="embed")
    (dialect, asked), (body, problem) = SURFACES[surface], REFUSALS[refusal]
    with (
        play(lambda peer: peer.answer(body), request=asked, dialect=dialect) as call,
        pytest.raises(problem),
    ):
        complete(call)
    record = UsageRecord.objects.get()
    assert (record.end, record.input_tokens, record.output_tokens) == ("provider_failed", 0, 0)


@pytest.mark.parametrize(
    "told", [{"status": "failed", "output": [], "error": {"code": "server_error"}}, {}]
)
@pytest.mark.parametrize("surface", SURFACES)
def test_a_failure_in_place_of_a_whole_answer_is_charged_by_the_usage_that_it_reports(
    play: Play, surface: str, told: dict[str, Any]
) -> None:
    LanguageModel.objects.create(name="embed", provider_name="embed")
    usage = {"input_tokens": 9, "output_tokens": 15, "prompt_tokens": 9, "completion_tokens": 15}
    failed, made = {**told, "usage": usage}, 0 if surface == "embeddings" else 15
    dialect, asked = SURFACES[surface]
    with (
        play(
            lambda peer: peer.answer(dumps(failed).encode()), request=asked, dialect=dialect
        ) as call,
        pytest.raises(ProviderError),
    ):
        complete(call)
    record = UsageRecord.objects.get()
    assert (record.end, record.source) == ("provider_failed", "provider")
    assert (record.input_tokens, record.output_tokens) == (9, made)


def test_an_error_after_a_usage_that_cannot_be_read_costs_its_prompt(play: Play) -> None:
    body = b'{"error": {"code": 1}, "usage": {"a": 1}}'
    with (
        play(lambda peer: peer.answer(body), streamed=False) as call,
        pytest.raises(ProviderError),
    ):
        complete(call)
    record = UsageRecord.objects.get()
    assert (record.end, record.input_tokens) == ("provider_failed", record.reserved_input)
    assert record.output_tokens == 0


def whole_answer(surface: str, given: int, made: int) -> dict[str, Any]:
    """A whole answer of 40 bytes that reports these tokens of its prompt and its text."""
    text = "word " * 8
    counts = {"input_tokens": given, "output_tokens": made}
    blocks = [{"type": "text", "text": text}]
    if "at Anthropic" in surface or surface == "messages":
        return {"id": "m", "model": "theirs", "content": blocks, "usage": counts}
    if surface == "responses":
        return {"output": [{"type": "message", "content": blocks}], "usage": counts}
    if surface == "embeddings":
        counts = {"prompt_tokens": given, "total_tokens": given}
        return {"data": [{"embedding": [0.5]}], "usage": counts}
    counts = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
    return {"choices": [{"message": {"content": text}}], "usage": counts}


@pytest.mark.parametrize("reported", [(1_000_000, 1_000_000), (0, 0), (9, 5)])
@pytest.mark.parametrize("surface", SURFACES)
def test_the_usage_of_a_whole_answer_is_what_is_charged(
    play: Play, surface: str, reported: tuple[int, int]
) -> None:
    LanguageModel.objects.create(name="embed", provider_name="embed")
    dialect, asked = SURFACES[surface]
    body = dumps(whole_answer(surface, *reported)).encode()
    with play(lambda peer: peer.answer(body), request=asked, dialect=dialect) as call:
        usage = complete(call)["usage"]
    record = UsageRecord.objects.get()
    given = usage.get("prompt_tokens", usage.get("input_tokens"))
    made = usage.get("completion_tokens", usage.get("output_tokens", 0))
    assert (given, made) == (record.input_tokens, record.output_tokens)
    if "total_tokens" in usage:
        assert usage["total_tokens"] == given + made
    # A report is charged as far as it is possible, and no prompt is empty.
    assert record.input_tokens == (reported[0] or record.reserved_input)
    assert record.is_implausible == (reported[0] > 9)


@pytest.mark.parametrize("parts", [[ROLE, BUSY_EVENT], [ROLE + BUSY_EVENT]])
def test_an_error_after_an_event_is_an_event_however_they_come(
    play: Play, parts: list[bytes]
) -> None:
    with play(plays(*parts)) as call:
        answer = read(stream(call))
    assert answer.startswith(ROLE)
    error = loads(answer.removeprefix(ROLE).removeprefix(b"data: "))["error"]
    assert (error["code"], error["status"]) == ("provider_unavailable", 503)
    record = UsageRecord.objects.get()
    assert (record.end, record.input_tokens) == ("provider_failed", record.reserved_input)


def test_comments_alone_do_not_hold_back_a_stream_for_longer_than_a_silence(
    play: Play, settings
) -> None:
    settings.LLM_KEEPALIVE_SECONDS = 0.2

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        while not begun.wait(0.02):
            peer.chunk(b": waiting\n\n")
        peer.chunk(chunk("one") + chunk(None) + DONE)
        peer.chunk(b"")

    begun = Event()
    with play(script) as call:
        answer = stream(call)
        assert next(answer).startswith(b": keep-alive\n")
        begun.set()
        assert read(answer).endswith(chunk("one") + chunk(None) + DONE)


def test_a_keep_alive_is_a_line_between_events_that_are_closed(play: Play, settings) -> None:
    """Azure/fetch-event-source#15, lukas-reining/eventsource#2 and theopenco/llmgateway#2334."""
    settings.LLM_KEEPALIVE_SECONDS = 0.1
    went_on = Event()

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one"))
        assert went_on.wait(GENEROUS)
        # A comment of the provider's in the middle, and no blank line at the end.
        peer.chunk(chunk("two") + b": waiting\n\n" + chunk("three"))
        peer.chunk(chunk(None).removesuffix(b"\n\n"))
        peer.chunk(b"")

    with play(script) as call:
        answer = stream(call)
        parts = [part for part, _ in zip(answer, range(4), strict=False)]
        assert parts == [chunk("one"), *[b": keep-alive\n"] * 3]
        went_on.set()
        rest = read(answer)
    said = b"".join([*parts, rest]).replace(b": keep-alive\n", b"")
    assert said == b"".join(map(chunk, ("one", "two", "three", None))) + DONE
    assert rest.count(b": keep-alive\n" + chunk("three")) == 1


@pytest.mark.parametrize(
    "kind",
    [
        None,
        b"text/event-stream; charset=utf-8",
        b"text/event-stream;charset=ISO-8859-1",
        b"application/json; charset=UTF-16",
        b"text/plain",
        b"",
        b"nonsense",
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_is_read_as_what_it_is_whatever_its_content_type(
    play: Play, kind: bytes | None, streamed: bool
) -> None:
    choice = {"index": 0, "message": {"content": "Grüße"}, "finish_reason": "stop"}
    whole = dumps({"choices": [choice]}, ensure_ascii=False).encode()
    body = chunk("Grüße") + chunk(None) + DONE if streamed else whole
    head = b"" if kind is None else b"Content-Type: %b\r\n" % kind
    sent = OK + head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with play(lambda peer: peer.send(sent), streamed=streamed) as call:
        if streamed:
            assert read(stream(call)) == body
        else:
            assert complete(call)["choices"][0]["message"]["content"] == "Grüße"
    assert UsageRecord.objects.get().end == "done"


@pytest.mark.parametrize("encoding", ["base64", "float", None])
@pytest.mark.parametrize("given", ["AAAAPwAAgL8=", [0.5, -1.0]])
def test_embeddings_come_in_the_form_that_was_asked_for(
    play: Play, encoding: str | None, given: object
) -> None:
    """mudler/LocalAI#9135"""
    LanguageModel.objects.create(name="embed", provider_name="embed")
    asked = {"model": "embed", "input": ["a"], "encoding_format": encoding}
    body = dumps({"data": [{"embedding": given}], "usage": {"prompt_tokens": 3}}).encode()
    request = embeddings.parse(asked)
    with play(lambda peer: peer.answer(body), request=request) as call:
        (made,) = complete(call)["data"]
    expected = "AAAAPwAAgL8=" if encoding == "base64" else [0.5, -1.0]
    assert made == {"embedding": expected, "index": 0}
    assert UsageRecord.objects.get().input_tokens == 3


def test_a_stream_of_comments_alone_is_no_answer(play: Play) -> None:
    with play(plays(b": waiting\n\n")) as call, pytest.raises(ProviderError):
        stream(call)


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "completion_tokens": None}])
def test_an_empty_usage_is_no_report(play: Play, usage: object) -> None:
    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one", usage=usage))
        peer.chunk(chunk("two", usage=usage))
        peer.chunk(chunk(None, usage=usage) + DONE)
        peer.chunk(b"")

    with play(script) as call:
        assert read(stream(call)).endswith(DONE)
    record = UsageRecord.objects.get()
    assert (record.end, record.source, record.output_tokens) == ("done", "counted", 2)
    assert record.first_byte_at is not None


def test_the_last_cumulative_report_counts_and_later_output_is_added(
    play: Play,
) -> None:
    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        usage = {"prompt_tokens": 40, "completion_tokens": 1}
        peer.chunk(chunk("one", usage=usage) + chunk("two") + chunk("three"))
        peer.reset()

    with play(script) as call:
        assert b"provider_error" in read(stream(call))
    record = UsageRecord.objects.get()
    assert (record.input_tokens, record.output_tokens, record.source) == (40, 3, "counted")


def test_a_stream_in_an_ending_process_ends_with_an_error_event(play: Play, settings) -> None:
    """As where a process may not wait for its streams any longer."""
    # Pauses of a slow machine between two chunks count as unseen text.
    settings.LLM_UNSEEN_TOKENS_PER_SECOND = 0

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one"))
        peer.wait_until_gone()

    with play(script) as call:
        answer = stream(call)
        assert next(answer) == chunk("one")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(call.attempt.exchange, "chunk", _told_to_end)
            assert b"service_unavailable" in next(answer)
        assert list(answer) == []
        answer.close()
    record = UsageRecord.objects.get()
    assert (record.end, record.source, record.output_tokens) == ("crashed", "counted", 1)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_call_that_is_cut_because_its_process_ends_is_settled(
    play: Play, streamed: bool, settings
) -> None:
    settings.LLM_UNSEEN_TOKENS_PER_SECOND = 10

    def script(peer: Peer) -> None:
        if streamed:
            peer.send(CHUNKED)
            peer.chunk(chunk("one"))
            eventually(lambda: call.attempt.meter.deltas > 0)
        time.sleep(0.3)
        watch.end_all()
        peer.wait_until_gone()

    with play(script, streamed=streamed) as call:
        if streamed:
            assert b"service_unavailable" in read(stream(call))
        else:
            with pytest.raises(ServiceUnavailable):
                complete(call)
    record = UsageRecord.objects.get()
    assert (record.end, record.input_tokens) == ("crashed", record.reserved_input)
    assert record.source == ("counted" if streamed else "estimated")
    assert 2 <= record.output_tokens < record.reserved_output


def _told_to_end(timeout: float) -> bytes:
    raise SystemExit


def test_no_references_to_an_ended_call_are_left(play: Play) -> None:
    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one") + chunk(None) + DONE)
        peer.chunk(b"")

    with play(script) as call:
        answer = stream(call)
        assert call.id in watch._calls
        read(answer)
        assert call.id not in watch._calls


def test_a_one_shot_answer_may_take_the_maximum_time_of_a_call(play: Play, settings) -> None:
    """Nothing of it comes before it is whole, however long that takes to make."""
    settings.LLM_READ_TIMEOUT = settings.LLM_FIRST_BYTE_TIMEOUT = 0.1

    def script(peer: Peer) -> None:
        made.wait(0.6)
        peer.answer(dumps({"choices": [{"message": {"content": "long"}}], "usage": USAGE}).encode())

    made = Event()
    with play(script, streamed=False) as call:
        assert complete(call)["choices"][0]["message"]["content"] == "long"
    assert UsageRecord.objects.get().output_tokens == 3005


def test_a_one_shot_answer_always_has_its_usage(play: Play) -> None:
    body = dumps({"choices": [{"message": {"content": "12345678"}}], "usage": None}).encode()
    with play(lambda peer: peer.answer(body), streamed=False) as call:
        usage = complete(call)["usage"]
    record = UsageRecord.objects.get()
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (record.input_tokens, 2)
    assert usage["total_tokens"] == record.input_tokens + 2
    assert record.source == "counted"


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([chunk("one"), chunk(None)], None),
        ([chunk("one"), chunk(None, usage=USAGE)], 3005),
        ([chunk("one"), chunk(None), usage_chunk()], 3005),
        ([chunk("one"), chunk(None), usage_chunk({**USAGE, "completion_tokens": 1}), usage_chunk()], 3005),
        ([chunk("one", usage={**USAGE, "completion_tokens": 1}), chunk(None), usage_chunk()], 3005),
        ([chunk("one"), chunk(None), usage_chunk({**USAGE, "prompt_tokens": -1})], None),
    ],
)  # fmt: skip
def test_a_stream_has_one_separate_usage_chunk_if_requested(
    play: Play, parts: list[bytes], told: int | None
) -> None:
    script = plays(*parts, DONE)
    with play(script, stream_options={"include_usage": True}) as call:
        answer = read(stream(call))
    assert answer.endswith(DONE)
    *before, last = chunks_in(answer)
    assert all(each["choices"] for each in before)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == (told or 1)
    record = UsageRecord.objects.get()
    assert (last["usage"]["prompt_tokens"], record.output_tokens) == (
        record.input_tokens,
        told or 1,
    )


def test_the_usage_chunk_has_the_head_of_the_others_and_the_providers_usage(
    play: Play,
) -> None:
    head = {"id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
    usage = {**USAGE, "queue_time": 0.5}
    script = plays(chunk("one", **head), chunk(None, **head), usage_chunk(usage, **head), DONE)
    with play(script, stream_options={"include_usage": True}) as call:
        *_, last = chunks_in(read(stream(call)))
    assert {name: last[name] for name in head} == head
    assert (last["usage"]["queue_time"], last["usage"]["total_tokens"]) == (0.5, 3014)


@pytest.mark.parametrize("reports", [True, False])
def test_a_client_that_leaves_before_the_usage_is_charged_for_hidden_output(
    play: Play, reports: bool
) -> None:
    left = Event()

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one") + chunk(None))
        assert left.wait(GENEROUS)
        if reports:
            peer.chunk(usage_chunk())
        peer.wait_until_gone()

    with (
        mock.patch.object(reading, "USAGE_SECONDS", GENEROUS if reports else 0.1),
        play(script) as c,
    ):
        answer = stream(c)
        assert b"stop" in next(answer)
        left.set()
        answer.close()
    record = UsageRecord.objects.get()
    known = (3005, "provider") if reports else (1, "counted")
    assert (record.end, record.output_tokens, record.source) == ("client_gone", *known)


def test_usage_is_not_awaited_for_a_client_that_leaves_before_the_end(play: Play) -> None:
    with play(lambda peer: (peer.send(CHUNKED), peer.chunk(chunk("one")))) as call:
        answer = stream(call)
        next(answer)
        with mock.patch.object(call.attempt.exchange, "chunk", side_effect=AssertionError):
            answer.close()
    assert UsageRecord.objects.get().end == "client_gone"


def test_a_provider_that_continues_after_its_end_is_cut(play: Play) -> None:
    said = chunk("word " * 20).replace(b'"stop"', b"null")

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one") + chunk(None))
        peer.chunk(said * 400)
        peer.wait_until_gone()

    with play(script, max_tokens=16) as call:
        assert b"provider_error" in read(stream(call))
    record = UsageRecord.objects.get()
    assert (record.end, record.source) == ("provider_failed", "counted")
    assert record.output_tokens > 16


def test_a_large_report_at_the_end_does_not_fail_the_answer(play: Play) -> None:
    with play(plays(chunk("one"), chunk(None), usage_chunk(), DONE), max_tokens=16) as call:
        assert read(stream(call)).endswith(DONE)
    # Charged as it was reported, and marked.
    record = UsageRecord.objects.get()
    assert (record.output_tokens, record.is_implausible) == (3005, True)


def test_a_missing_last_event_is_not_awaited_for_long(play: Play) -> None:
    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one") + chunk(None) + usage_chunk())
        peer.wait_until_gone()

    with mock.patch.object(reading, "LAST_EVENT_SECONDS", 0.1), play(script) as call:
        answer = read(stream(call))
    assert answer.endswith(DONE)
    record = UsageRecord.objects.get()
    assert (record.end, record.source, record.output_tokens) == ("done", "provider", 3005)


def test_an_ended_answer_is_whole_without_usage_and_last_event(play: Play, settings) -> None:
    settings.LLM_READ_TIMEOUT = 3.0

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one") + chunk(None))
        peer.wait_until_gone()

    with mock.patch.object(reading, "USAGE_SECONDS", 0.1), play(script) as call:
        assert read(stream(call)).endswith(DONE)
    record = UsageRecord.objects.get()
    assert (record.end, record.source, record.output_tokens) == ("done", "counted", 1)


@pytest.mark.parametrize(
    ("after", "known"),
    [
        (b"", (41, "counted")),
        (DONE, (41, "counted")),
        (usage_chunk({**USAGE, "completion_tokens": 40}) + DONE, (41, "counted")),
        (usage_chunk({**USAGE, "completion_tokens": 42}) + DONE, (42, "provider")),
    ],
)
def test_an_early_report_does_not_cover_later_output(
    play: Play, after: bytes, known: tuple[int, str]
) -> None:
    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one", usage={**USAGE, "completion_tokens": 1}))
        peer.chunk(chunk("more") * 40)
        peer.chunk(chunk(None))
        # Longer than a last word is waited for, and shorter than the usage.
        time.sleep(0.3)
        if after:
            peer.chunk(after)
        peer.close()

    with (
        mock.patch.object(reading, "LAST_EVENT_SECONDS", 0.1),
        mock.patch.object(reading, "USAGE_SECONDS", GENEROUS),
        play(script) as call,
    ):
        assert read(stream(call)).endswith(DONE)
    record = UsageRecord.objects.get()
    assert (record.end, record.output_tokens, record.source) == ("done", *known)


@pytest.mark.parametrize("ends", [Peer.close, Peer.reset])
@pytest.mark.parametrize(
    ("tail", "known"),
    [
        (b"", (1, "counted")),
        (usage_chunk()[:-20], (1, "counted")),
        (usage_chunk(), (3005, "provider")),
    ],
)
def test_an_ended_answer_is_whole_if_its_connection_breaks_afterwards(
    play: Play, ends: Script, tail: bytes, known: tuple[int, str]
) -> None:
    heard = Event()

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one") + chunk(None) + tail)
        assert heard.wait(GENEROUS)
        ends(peer)

    with play(script, stream_options={"include_usage": True}) as call:
        answer = stream(call)
        assert b"stop" in next(answer)
        heard.set()
        end = read(answer)
    assert (end.endswith(DONE), b"error" in end, answer.failure) == (True, False, None)
    record = UsageRecord.objects.get()
    assert (record.end, record.output_tokens, record.source) == ("done", *known)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("status", "kind"), [(500, ProviderError), (429, ProviderUnavailable), (400, ProviderRejected)]
)
def test_a_refusal_without_its_body_is_translated_by_status(
    play: Play, streamed: bool, status: int, kind: type
) -> None:
    def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 %d No\r\nContent-Length: 1000\r\n\r\n{" % status)
        peer.wait_until_gone()

    with (
        mock.patch.object(reading, "REFUSAL_SECONDS", 0.1),
        play(script, streamed=streamed) as call,
        pytest.raises(kind),
    ):
        stream(call) if streamed else complete(call)
    record = UsageRecord.objects.get()
    assert (record.end, record.input_tokens, record.output_tokens) == ("provider_failed", 0, 0)


def test_an_endless_refusal_is_not_read_to_the_end(play: Play) -> None:
    def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 500 No\r\n\r\n" + b"x" * 2 * reading.MAX_REFUSAL)
        peer.wait_until_gone()

    with (
        mock.patch.object(reading, "REFUSAL_SECONDS", GENEROUS * 6),
        play(script) as call,
        pytest.raises(ProviderError),
    ):
        stream(call)
    assert UsageRecord.objects.get().end == "provider_failed"


@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_has_the_name_of_the_models_row(play: Play, streamed: bool) -> None:
    LanguageModel.objects.create(name="house", provider_name="theirs")
    whole = {"choices": [{"message": {"content": "é"}}], "usage": USAGE, "model": "theirs-2026"}
    parts = (chunk("é", model="theirs-2026"), chunk(None, model="theirs-2026"), usage_chunk(), DONE)
    script = plays(*parts) if streamed else lambda peer: peer.answer(dumps(whole).encode())
    options = {"stream_options": {"include_usage": True}} if streamed else {}
    with play(script, streamed=streamed, model="house", **options) as call:
        answers = chunks_in(read(stream(call))) if streamed else [complete(call)]
    assert {each["model"] for each in answers} == {"house"}
    if streamed:
        assert answers[0]["choices"][0]["delta"]["content"] == "é"


def test_an_answer_with_the_providers_name_is_forwarded_unchanged(play: Play) -> None:
    LanguageModel.objects.create(name="theirs", provider_name="theirs")
    said = chunk("é", model="theirs-2026")
    with play(plays(said, chunk(None), DONE), model="theirs") as call:
        assert read(stream(call)).startswith(said)


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"event: completion\nid: 1\n", b": VENDOR\n"])
def test_a_client_can_read_a_stream_with_an_unusual_beginning(play: Play, mark: bytes) -> None:
    with play(plays(mark + chunk("one, "), chunk("two"), chunk(None), DONE)) as call:
        answer = read(stream(call))
    http = httpx.Client(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, content=answer))
    )
    with openai.OpenAI(api_key="-", http_client=http) as client:
        said = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "hello"}], stream=True
        )
        assert "".join(each.choices[0].delta.content or "" for each in said) == "one, two"
    assert mark not in answer


def test_a_client_that_disconnects_before_the_usage_is_cut_in_the_next_round(
    play: Play,
) -> None:
    """The watch cuts at once in every other silence."""

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one") + chunk(None))
        peer.wait_until_gone()

    with mock.patch.object(watch, "_start"), play(script) as call:
        answer = stream(call)
        next(answer)
        call.has_left = lambda: True
        watch.end_disconnected()
        assert call.left_at is not None
        assert watch._calls[call.id].cut_at is None
        watch.end_disconnected()
        assert watch._calls[call.id].cut_at is not None
        answer.close()
        eventually(lambda: UsageRecord.objects.get().end == "client_gone")


def leave(call: Call) -> None:
    """The client disconnects, and the watch notices it."""
    call.has_left = lambda: True
    watch.end_disconnected()
    # As the watch does after each round; this thread ends without one.
    release_connection()


WHOLE = dumps({"choices": [{"message": {"content": "long"}}], "usage": USAGE}).encode()


@pytest.mark.parametrize("sent", [0, 1, 30], ids=["before-the-head", "in-the-head", "in-the-body"])
def test_a_whole_answer_is_read_to_its_end_after_its_client_has_left(play: Play, sent: int) -> None:
    answer = OK + b"Content-Length: %d\r\n\r\n%s" % (len(WHOLE), WHOLE)

    def script(peer: Peer) -> None:
        head = min(sent, 1) and sent + answer.index(b"{") * (sent > 1)
        peer.send(answer[:head])
        leave(call)
        peer.send(answer[head:])

    with mock.patch.object(watch, "_start"), play(script, streamed=False) as call:
        complete(call)
    record = UsageRecord.objects.get()
    assert (record.end, record.source) == ("client_gone", "provider")
    assert (record.input_tokens, record.output_tokens) == (9, 3005)


def test_a_whole_answer_without_numbers_costs_what_it_holds_after_its_client_has_left(
    play: Play,
) -> None:
    body = dumps({"choices": [{"message": {"content": "12345678"}}]}).encode()
    with (
        mock.patch.object(watch, "_start"),
        play(
            lambda peer: (time.sleep(0.1), leave(call), peer.answer(body)), streamed=False
        ) as call,
    ):
        complete(call)
    record = UsageRecord.objects.get()
    assert (record.end, record.source, record.output_tokens) == ("client_gone", "counted", 2)


def test_a_client_that_leaves_just_before_the_end_is_seen_without_the_watch(play: Play) -> None:
    def script(peer: Peer) -> None:
        call.has_left = lambda: True
        peer.answer(WHOLE)

    with mock.patch.object(watch, "_start"), play(script, streamed=False) as call:
        complete(call)
    record = UsageRecord.objects.get()
    assert (record.end, record.output_tokens) == ("client_gone", 3005)


@pytest.mark.parametrize(
    ("fails", "charged"),
    [
        (Peer.reset, (False, 0, "counted")),
        (lambda peer: peer.send(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), (False, 0, "counted")),
    ],
    ids=["reset", "refused"],
)  # fmt: skip
def test_a_provider_that_fails_in_the_background_is_charged_as_ever(
    play: Play, fails: Script, charged: tuple[bool, int, str]
) -> None:
    def script(peer: Peer) -> None:
        leave(call)
        fails(peer)
        peer.close()

    with (
        mock.patch.object(watch, "_start"),
        play(script, streamed=False) as call,
        pytest.raises(Problem),
    ):
        complete(call)
    record = UsageRecord.objects.get()
    assert record.end == "provider_failed"
    assert (record.input_tokens > 0, record.output_tokens, record.source) == charged


@pytest.mark.parametrize("how", ["beyond thirty", "stopped", "process ends"])
def test_a_background_read_that_is_cut_is_charged_by_time_or_its_reservation(
    play: Play, how: str, settings
) -> None:
    settings.LLM_UNSEEN_TOKENS_PER_SECOND = 10_000
    most = 0 if how == "beyond thirty" else 30

    def script(peer: Peer) -> None:
        time.sleep(0.1)
        leave(call)
        if how == "stopped":
            watch._calls[call.id].cut(StopReason.ACCESS_GONE, AccessRevoked())
        peer.wait_until_gone()

    def head(exchange: Exchange, timeout: float) -> Head | None:
        """Ends the reading task as gunicorn does after its grace."""
        waited = until_gone(exchange, 0.3 if how == "process ends" else timeout)
        if how == "process ends":
            raise SystemExit
        return waited

    until_gone = Exchange.head

    with (
        mock.patch.object(watch, "_start"),
        mock.patch.object(watch, "MOST_BACKGROUND_READS", most),
        mock.patch.object(Exchange, "head", head),
        play(script, streamed=False, max_tokens=3000) as call,
        pytest.raises(Problem),
    ):
        complete(call)
    record = UsageRecord.objects.get()
    ends = {"beyond thirty": "client_gone", "stopped": "stopped", "process ends": "client_gone"}
    assert record.end == ends[how]
    assert record.source == "estimated"
    assert record.input_tokens == record.reserved_input
    if how == "beyond thirty":
        assert record.output_tokens == 3000
    assert 1000 <= record.output_tokens <= 3000


TOOL_CALL = chunk("x").replace(
    b'{"content": "x"}',
    b'{"tool_calls": [{"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}',
)


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ([], (0, "estimated")),
        ([chunk("one"), chunk("two")], (2, "counted")),
        ([TOOL_CALL], (1, "counted")),
        ([chunk("one"), chunk(None)], (1, "counted")),
        ([chunk("one"), chunk(None), usage_chunk()], (3005, "provider")),
    ],
    ids=["silence", "mid-stream", "tool-call", "finished", "reported"],
)
@pytest.mark.parametrize("rate", [0, 10_000])
def test_a_stream_that_is_left_costs_what_was_delivered_and_may_have_been_made(
    play: Play, said: list[bytes], known: tuple[int, str], rate: int, settings
) -> None:
    settings.LLM_UNSEEN_TOKENS_PER_SECOND, settings.LLM_KEEPALIVE_SECONDS = rate, 0.05

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        for each in said:
            peer.chunk(each)
        peer.wait_until_gone()

    with (
        mock.patch.object(watch, "_start"),
        mock.patch.object(reading, "USAGE_SECONDS", GENEROUS if known[1] == "provider" else 0.1),
        play(script) as call,
    ):
        answer = stream(call)
        meter = call.attempt.meter
        while meter.deltas < known[0] and not meter.is_reported:
            next(answer)
        time.sleep(0.1)
        answer.close()
    record = UsageRecord.objects.get()
    assert (record.end, record.source) == ("client_gone", known[1])
    assert record.input_tokens in {9, record.reserved_input}
    if rate and not meter.is_finished:
        # Of the wait before the first delta a tenth.
        least = known[0] + (1000 if said else 100)
        assert least <= record.output_tokens <= record.reserved_output
    else:
        assert record.output_tokens == known[0]


@pytest.mark.parametrize(
    ("said", "stopped", "left", "ended"),
    [
        (chunk("hello"), AccessRevoked(), False, "access_revoked"),
        (chunk("hello"), None, False, "provider_error"),
        (chunk("hello"), None, True, "cut"),
        (chunk("hello") + chunk(None), AccessRevoked(), False, "access_revoked"),
        (chunk("hello") + chunk(None), None, True, "cut"),
    ],
)
def test_a_failed_stream_reports_how_it_ended(
    play: Play, said: bytes, stopped: Problem | None, left: bool, ended: str
) -> None:
    go_on = Event()

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(said)
        go_on.wait(GENEROUS)
        peer.reset()

    with play(script) as call:
        response = _streamed(stream(call), {})
        parts = iter(response)
        assert b"hello" in next(parts)
        if stopped is not None:
            call.stop.set(StopReason.ACCESS_GONE, stopped)
        if left:
            call.stop.set(StopReason.CLIENT_GONE)
        go_on.set()
        assert b'"error"' in b"".join(parts)
        response.close()
    assert response.how_ended() == ended  # type: ignore[attr-defined]


def test_a_successful_stream_reports_no_end(play: Play) -> None:
    with play(plays(chunk("hello"), chunk(None), usage_chunk(), DONE)) as call:
        response = _streamed(stream(call), {})
        assert b"[DONE]" in b"".join(response)
        response.close()
    assert response.how_ended() is None  # type: ignore[attr-defined]


def told(kind: str, number: int, **members: object) -> bytes:
    """An event of the Responses API."""
    data = dumps({"type": f"response.{kind}", "sequence_number": number, **members})
    return f"event: response.{kind}\ndata: {data}\n\n".encode()


class TestResponses:
    """Streams of the Responses API in the same relay."""

    ASKED = responses.parse({"input": "hello", "stream": True})
    CREATED = told("created", 0, response={"id": "r", "output": []})
    DELTAS = [told("output_text.delta", at, output_index=0, delta=f"word {at} ") for at in (1, 2)]

    @staticmethod
    def completed(usage: object) -> bytes:
        return told("completed", 3, response={"id": "r", "output": [], "usage": usage})

    @pytest.mark.parametrize("after", [(), (b"data: [DONE]\n\n",)])
    def test_the_last_event_comes_after_the_settlement(
        self, play: Play, after: tuple[bytes, ...]
    ) -> None:
        usage = {"input_tokens": 9, "output_tokens": 5, "total_tokens": 14}
        parts = (self.CREATED, *self.DELTAS, self.completed(usage), *after)
        with play(plays(*parts), request=self.ASKED) as call:
            answer = stream(call)
            *others, last = list(answer)
            # The stream is not closed yet.
            record = UsageRecord.objects.get()
            answer.close()
        before, _, _ = last.partition(b"event: response.completed")
        assert b"".join(others) + before == self.CREATED + b"".join(self.DELTAS)
        assert (record.end, record.source) == ("done", "provider")
        assert (record.input_tokens, record.output_tokens) == (9, 5)

    @pytest.mark.parametrize(
        ("kind", "end"), [("incomplete", "done"), ("failed", "provider_failed")]
    )
    def test_another_end_with_usage_settles_by_it(self, play: Play, kind: str, end: str) -> None:
        usage = {"input_tokens": 9, "output_tokens": 55, "total_tokens": 64}
        given = {"id": "r", "output": [], "usage": usage, "error": {"code": "server_error"}}
        parts = (self.CREATED, *self.DELTAS, told(kind, 3, response=given))
        with play(plays(*parts), request=self.ASKED) as call:
            read(stream(call))
        record = UsageRecord.objects.get()
        assert (record.end, record.source) == (end, "provider")
        assert (record.input_tokens, record.output_tokens) == (9, 55)

    def test_a_failure_in_place_of_an_answer_costs_nothing(self, play: Play) -> None:
        usage = {"input_tokens": 9, "output_tokens": 0, "total_tokens": 9}
        failed = told("failed", 0, response={"id": "r", "error": {}, "usage": usage})
        with play(plays(failed), request=self.ASKED) as call, pytest.raises(ProviderError):
            stream(call)
        record = UsageRecord.objects.get()
        assert (record.end, record.input_tokens) == ("provider_failed", 0)

    def test_the_output_delivered_is_charged_and_told_without_a_report(self, play: Play) -> None:
        parts = (self.CREATED, *self.DELTAS, self.completed(None))
        with play(plays(*parts), request=self.ASKED) as call:
            answer = read(stream(call))
        record = UsageRecord.objects.get()
        assert (record.end, record.source, record.output_tokens) == ("done", "counted", 4)
        last = loads(answer.rstrip().rsplit(b"data: ", 1)[1])
        assert last["response"]["usage"]["output_tokens"] == 4

    def test_a_stream_without_its_last_event_is_a_failure(self, play: Play) -> None:
        with play(plays(self.CREATED, *self.DELTAS), request=self.ASKED) as call:
            answer = read(stream(call))
        assert b"event: error\n" in answer
        assert b"event: response.failed\n" in answer
        record = UsageRecord.objects.get()
        assert (record.end, record.output_tokens) == ("provider_failed", 4)

    def test_a_client_that_leaves_pays_what_was_delivered(self, play: Play, settings) -> None:
        settings.LLM_UNSEEN_TOKENS_PER_SECOND, settings.LLM_KEEPALIVE_SECONDS = 0, 0.2

        def script(peer: Peer) -> None:
            peer.send(CHUNKED)
            for part in (self.CREATED, *self.DELTAS):
                peer.chunk(part)
            peer.wait_until_gone()

        with play(script, request=self.ASKED) as call:
            answer = stream(call)
            # Keep-alives may come in between.
            while call.attempt.meter.deltas < len(self.DELTAS):
                next(answer)
            answer.close()
        record = UsageRecord.objects.get()
        assert (record.end, record.output_tokens) == ("client_gone", 4)
