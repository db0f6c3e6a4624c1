"""All servers' words for the end of an answer: ends that callers know, and failures, on every surface."""

import logging
from collections.abc import Iterator
from json import dumps
from typing import Any

import pytest

from config.platform.problems.problem import Problem
from llmproxy.calls.relay import complete, stream
from llmproxy.dialects import ends
from llmproxy.dialects.by_name import DIALECTS
from llmproxy.dialects.chat_answers import DONE
from llmproxy.dialects.failures import FailedAnswer
from llmproxy.dialects.protocol import (
    Piece,
    ProviderError,
    ProviderUnavailable,
    TokenUsage,
    Translator,
)
from llmproxy.dialects.sse import EventParser
from llmproxy.requests import responses
from llmproxy.requests.call_request import Surface
from tests.llmproxy.targets import target
from tests.llmproxy.test_failover import Routed, abandoned, answers, routed
from tests.llmproxy.test_relay import Play, chunks_in, play, plays, read
from tests.llmproxy.test_usage import SURFACES, asked, event, whole
from tests.standins.raw_server import CHUNKED, Peer
from usage.models import UsageRecord

__all__ = ["play", "routed"]

Json = dict[str, Any]
# The source of each word; without a number it is its server's own documentation.
ENDS = [
    ("stop", "stop", "OpenAI"),
    ("length", "length", "OpenAI"),
    ("tool_calls", "tool_calls", "OpenAI"),
    ("function_call", "function_call", "OpenAI"),
    ("content_filter", "content_filter", "OpenAI"),
    ("eos", "stop", "openai/openai-dotnet#267"),
    ("eos_token", "stop", "simstudioai/sim#6302"),
    ("end_turn", "stop", "Anthropic"),
    ("stop_sequence", "stop", "Anthropic"),
    ("compaction", "stop", "BerriAI/litellm#25165"),
    ("STOP", "stop", "Google"),
    ("COMPLETE", "stop", "Cohere"),
    ("MAX_TOKENS", "length", "Google"),
    ("max_tokens", "length", "Anthropic"),
    ("model_length", "length", "simstudioai/sim#6302"),
    ("model_context_window_exceeded", "length", "mozilla-ai/any-llm#1200"),
    ("ERROR_LIMIT", "length", "Cohere"),
    ("tool_use", "tool_calls", "Anthropic"),
    ("TOOL_CALL", "tool_calls", "Cohere"),
    ("toolUse", "tool_calls", "Bedrock"),
    ("SAFETY", "content_filter", "Google"),
    ("RECITATION", "content_filter", "Google"),
    ("sensitive", "content_filter", "earendil-works/pi#1509"),
    ("guardrail_intervened", "content_filter", "Bedrock"),
    ("refusal", "content_filter", "laravel/ai#881"),
    ("ERROR_TOXIC", "content_filter", "Cohere"),
    ({"type": "length", "length": 9}, "length", "SGLang"),
]
FAILURES = [
    ("error", "maximhq/bifrost#5425"),
    ("abort", "vllm-project/vllm#57082"),
    ("aborted", "DeepSeek"),
    ("network_error", "earendil-works/pi#1509"),
    ("insufficient_system_resource", "DeepSeek"),
    ("engine_error", "several"),
    ("cancelled", "kekzl/imp#1590"),
    ("capacity", "kekzl/imp#1590"),
    ("MALFORMED_FUNCTION_CALL", "Google"),
    ("ERROR", "Cohere"),
    ("timeout", "several"),
]
USAGE = {"prompt_tokens": 4241, "completion_tokens": 7, "total_tokens": 4248}
ANTHROPICS = {"input_tokens": 4241, "output_tokens": 7}


def usage_of(surface: str) -> Json:
    return USAGE if surface == "chat" else ANTHROPICS


def ended(surface: str, reason: Any, usage: Any = None) -> Json:
    """A whole answer that ends for this reason."""
    answer = whole(surface, usage)
    if surface == "chat":
        answer["choices"][0]["finish_reason"] = reason
    elif surface == "responses":
        answer |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
    else:
        answer["stop_reason"] = reason
    return answer


def told(surface: str, answer: Json) -> Any:
    """The reason for the end of an answer to a caller."""
    if surface == "responses":
        return answer["incomplete_details"]["reason"]
    return answer["stop_reason"] if surface == "messages" else answer["choices"][0]["finish_reason"]


def last_events(surface: str, reason: Any, usage: Any = None) -> Iterator[bytes]:
    """The events that end a stream for this reason; its usage comes as late as its servers send it."""
    dialect, api = SURFACES[surface]
    if dialect == "anthropic":
        delta = {"stop_reason": reason}
        yield event({"type": "message_delta", "delta": delta, "usage": usage})
        yield event({"type": "message_stop"})
    elif api is Surface.RESPONSES:
        response = {"id": "r", **ended(surface, reason, usage)}
        yield event({"type": "response.incomplete", "response": response})
    else:
        yield event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        if usage is not None:
            yield event({"choices": [], "usage": usage})
        yield DONE


def first_events(surface: str) -> Iterator[bytes]:
    """The events that begin a stream with a text."""
    dialect, api = SURFACES[surface]
    if dialect == "anthropic":
        begun = {"id": "m", "model": "theirs", "content": []}
        yield event({"type": "message_start", "message": begun})
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "Half"}
        yield event({"type": "content_block_start", "index": 0, "content_block": block})
        yield event({"type": "content_block_delta", "index": 0, "delta": delta})
    elif api is Surface.RESPONSES:
        yield event({"type": "response.created", "response": {"id": "r", "output": []}})
        yield event({"type": "response.output_text.delta", "output_index": 0, "delta": "Half"})
    else:
        choice = {"index": 0, "delta": {"content": "Half"}, "finish_reason": None}
        yield event({"choices": [choice]})


@pytest.mark.parametrize(("word", "reason", "_from"), ENDS)
def test_finish_reasons_are_translated_to_those_of_openai(
    word: Any, reason: str, _from: str
) -> None:
    assert not ends.is_failure(word)
    assert ends.finish_reason(word, provider="p") == reason
    assert ends.finish_reason(reason, provider="p") == reason
    for surface in ("chat", "chat at Anthropic"):
        dialect, api = SURFACES[surface]
        body = dumps(ended(surface, word)).encode()
        answer, _, _ = DIALECTS[dialect].codecs[api].answer(body, target=target(dialect))
        assert told(surface, answer) == reason


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        *((each, each) for each in ("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn")),
        *((each, each) for each in ("refusal", "model_context_window_exceeded", "compaction")),
        ("stop", "end_turn"), ("eos", "end_turn"), ("length", "max_tokens"), ("tool_calls", "tool_use"),
        ("content_filter", "refusal"), ("sensitive", "refusal"), ("of tomorrow", "end_turn"),
    ],
)  # fmt: skip
def test_finish_reasons_are_translated_for_callers_of_messages(word: str, reason: str) -> None:
    codec = DIALECTS["anthropic"].codecs[Surface.MESSAGES]
    body = dumps(ended("messages", word)).encode()
    answer, _, _ = codec.answer(body, target=target("anthropic"))
    assert told("messages", answer) == reason


@pytest.mark.parametrize(
    ("word", "reason"),
    [("max_output_tokens",) * 2, ("content_filter",) * 2, ("length", "max_output_tokens"),
     ("MAX_TOKENS", "max_output_tokens"), ("safety", "content_filter"), ("of tomorrow",) * 2],
)  # fmt: skip
def test_finish_reasons_are_translated_for_callers_of_responses(word: str, reason: str) -> None:
    codec = DIALECTS["openai"].codecs[Surface.RESPONSES]
    body = dumps(ended("responses", word)).encode()
    answer, _, _ = codec.answer(body, target=target())
    assert told("responses", answer) == reason
    translator = codec.translator(
        responses.parse({"input": "x", "stream": True}), target=target(), called=None
    )
    from_events = _pieces(translator, [*first_events("responses"), *last_events("responses", word)])
    assert from_events[-1].ended
    assert b'"reason":"%b"' % reason.encode() in translator.ending(TokenUsage(1, 1))


def test_an_unknown_finish_reason_is_a_stop_counted_and_logged_once_for_each_provider(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    monkeypatch.setattr(ends, "unknown", [counted.append])
    monkeypatch.setattr(ends, "_logged", set())
    for provider in ("one", "two", "one"):
        assert ends.finish_reason("of tomorrow", provider=provider) == "stop"
    assert ends.finish_reason(7, provider="two") == "stop"
    assert counted == ["one", "two", "one", "two"]
    lines = [each for each in caplog.records if each.message == "unknown_finish_reason"]
    assert [(each.provider, each.levelno) for each in lines] == [  # type: ignore[attr-defined]
        ("one", logging.WARNING),
        ("two", logging.WARNING),
    ]
    # A server may repeat what its caller wrote.
    assert "of tomorrow" not in caplog.text


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize(("word", "_from"), FAILURES)
def test_a_finish_reason_of_failure_is_a_failure_on_every_surface(
    word: str, _from: str, surface: str
) -> None:
    dialect, api = SURFACES[surface]
    codec = DIALECTS[dialect].codecs[api]
    with pytest.raises(FailedAnswer):
        codec.answer(dumps(ended(surface, word)).encode(), target=target(dialect))
    translator = codec.translator(
        asked(surface, streamed=True), target=target(dialect), called=None
    )
    pieces = _pieces(translator, [*first_events(surface), *last_events(surface, word)])
    assert [bool(piece.failed) for piece in pieces] == [*[False] * (len(pieces) - 1), True]


def _pieces(translator: Translator, events: list[bytes]) -> list[Piece]:
    """Yields the meanings of events, up to a failure."""
    found = []
    for given in EventParser().feed(b"".join(events)):
        found.append(translator.piece(given))
        if found[-1].failed or found[-1].ended:
            break
    return found


FAILED_CHOICES: list[tuple[Json, type[Problem]]] = [
    ({"finish_reason": "error"}, ProviderError),
    ({"finish_reason": "error", "error": {"message": "upstream failed", "code": 502}}, ProviderError),
    ({"finish_reason": "stop", "error": {"message": "busy", "code": 429}}, ProviderUnavailable),
    ({"finish_reason": None, "error": "upstream failed"}, ProviderError),
    ({"finish_reason": "insufficient_system_resource"}, ProviderUnavailable),
    ({"finish_reason": "error", "error": {}}, ProviderError),
    ({"finish_reason": "error", "error": None, "native_finish_reason": "error"}, ProviderError),
]  # fmt: skip


@pytest.mark.django_db(transaction=True)
class TestInsideAnAnswer:
    """Failures inside an answer of which something has come, through the relay."""

    @pytest.mark.parametrize(("members", "problem"), FAILED_CHOICES)
    def test_a_whole_one_is_a_problem_and_costs_what_it_reports(
        self, play: Play, members: Json, problem: type[Problem]
    ) -> None:
        choice = {"index": 0, "message": {"content": "Half"}, **members}
        body = dumps({"choices": [choice], "usage": USAGE}).encode()
        with (
            play(lambda peer: peer.answer(body), streamed=False) as call,
            pytest.raises(problem),
        ):
            complete(call)
        assert the_charge() == ("provider_failed", 4241, 7, "provider")
        assert call.advice() == {"x-should-retry": "false"}

    @pytest.mark.parametrize(("members", "problem"), FAILED_CHOICES)
    def test_a_streamed_one_ends_with_an_error_and_costs_what_it_reports(
        self, play: Play, members: Json, problem: type[Problem]
    ) -> None:
        choice = {"index": 0, "delta": {}, **members}
        parts = [*first_events("chat"), event({"choices": [choice]})]
        usage = event({"choices": [], "usage": USAGE})
        with play(plays(*parts, usage, DONE)) as call:
            answer = read(stream(call))
        assert DONE not in answer
        assert chunks_in(answer)[-1]["error"]["code"] == problem.code
        assert b'"finish_reason":"' not in answer
        assert the_charge() == ("provider_failed", 4241, 7, "provider")

    @pytest.mark.parametrize("surface", SURFACES)
    def test_a_failure_inside_an_answer_ends_every_surface_in_its_own_way(
        self, play: Play, surface: str
    ) -> None:
        dialect, _ = SURFACES[surface]
        parts = [*first_events(surface), *last_events(surface, "abort", usage_of(surface))]
        call = asked(surface, streamed=True)
        with play(plays(*parts), request=call, dialect=dialect) as made:
            answer = read(stream(made))
        assert b"Half" in answer
        assert b"provider_error" in answer
        for end in (DONE, b"message_stop", b"response.completed", b"response.incomplete"):
            assert end not in answer
        assert the_charge() == ("provider_failed", 4241, 7, "provider")

    @pytest.mark.parametrize("surface", SURFACES)
    @pytest.mark.parametrize("streamed", [True, False])
    def test_a_failure_before_the_first_byte_is_a_problem(
        self, play: Play, surface: str, streamed: bool
    ) -> None:
        dialect, _ = SURFACES[surface]
        usage = usage_of(surface)
        call = asked(surface, streamed=streamed)
        script = plays(*last_events(surface, "abort", usage))
        if not streamed:
            body = dumps(ended(surface, "abort", usage)).encode()
            script = lambda peer: peer.answer(body)  # noqa: E731 - as above
        with play(script, request=call, dialect=dialect) as made, pytest.raises(ProviderError):
            stream(made) if streamed else complete(made)
        assert the_charge() == ("provider_failed", 4241, 7, "provider")
        assert made.advice() == {"x-should-retry": "false"}

    def test_a_failed_stream_without_a_report_costs_the_prompt_and_the_delivered_output(
        self, play: Play
    ) -> None:
        with play(plays(*first_events("chat"), *last_events("chat", "abort"))) as call:
            read(stream(call))
        assert the_charge()[0::3] == ("provider_failed", "counted")
        record = UsageRecord.objects.get()
        assert (record.input_tokens, record.output_tokens) == (record.reserved_input, 1)

    @pytest.mark.parametrize("surface", SURFACES)
    @pytest.mark.parametrize("streamed", [True, False])
    def test_a_failed_whole_answer_without_a_report_costs_the_prompt_and_its_output(
        self, play: Play, surface: str, streamed: bool
    ) -> None:
        """Whatever form was asked for."""
        dialect, _ = SURFACES[surface]
        answer = ended(surface, "abort")
        body = dumps({name: each for name, each in answer.items() if name != "usage"}).encode()
        call = asked(surface, streamed=streamed)
        with (
            play(lambda peer: peer.answer(body), request=call, dialect=dialect) as made,
            pytest.raises(ProviderError),
        ):
            stream(made) if streamed else complete(made)
        record = UsageRecord.objects.get()
        assert the_charge()[0::3] == ("provider_failed", "counted")
        assert (record.input_tokens, record.output_tokens) == (record.reserved_input, 1)

    def test_a_usage_that_does_not_come_is_not_awaited_for_long(
        self, play: Play, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("llmproxy.calls.reading.USAGE_SECONDS", 0.1)

        def script(peer: Peer) -> None:
            peer.send(CHUNKED)
            for part in (*first_events("chat"), *list(last_events("chat", "abort"))[:1]):
                peer.chunk(part)
            peer.wait_until_gone()

        with play(script) as call:
            answer = read(stream(call))
        assert b"provider_error" in answer

    def test_an_unknown_finish_reason_does_not_fail_an_answer(self, play: Play) -> None:
        parts = [*first_events("chat"), *last_events("chat", "of tomorrow", USAGE)]
        with play(plays(*parts)) as call:
            answer = read(stream(call))
        assert answer.endswith(DONE)
        assert chunks_in(answer)[-1]["choices"][0]["finish_reason"] == "stop"
        assert the_charge() == ("done", 4241, 7, "provider")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("streamed", [True, False])
def test_a_failure_inside_an_answer_goes_on_before_the_first_byte(
    routed: Routed, streamed: bool
) -> None:
    choice = {"index": 0, "finish_reason": "error", "error": {"message": "no"}}

    def script(peer: Peer, _: bytes) -> None:
        if streamed:
            peer.send(CHUNKED)
            peer.chunk(event({"choices": [{**choice, "delta": {}}], "usage": USAGE}))
            peer.chunk(b"")
        else:
            made = {**choice, "message": {"content": "Half"}}
            peer.answer(dumps({"choices": [made], "usage": USAGE}).encode())

    routed.add(script)
    routed.add(answers("second"))
    answer = routed.ask(streamed=streamed)
    assert b"second" in answer
    assert b"Half" not in answer
    (left,) = abandoned()
    assert (left.provider, left.input, left.output, left.is_reported) == (
        "number-1",
        4241,
        7,
        True,
    )
    record = UsageRecord.objects.get()
    assert (record.end, record.input_tokens) == ("done", 9)


def the_charge() -> tuple[Any, ...]:
    columns = ("end", "input_tokens", "output_tokens", "source")
    return UsageRecord.objects.values_list(*columns).get()


FAILED_RESPONSES: list[tuple[str, Json]] = [
    ("response.failed", {"status": "failed", "error": {"code": "server_error", "message": "no"}}),
    ("response.failed", {"status": "failed", "error": None}),
    ("response.failed", {}),
    ("response.cancelled", {"status": "cancelled"}),
    ("response.completed", {"status": "failed", "error": None}),
    ("response.completed", {"status": "completed", "error": {"message": "no"}}),
    ("response.incomplete", {"incomplete_details": {"reason": "error"}}),
]


@pytest.mark.parametrize(("kind", "members"), FAILED_RESPONSES)
def test_a_response_that_has_failed_is_a_failure_whatever_its_last_event_is(
    kind: str, members: Json
) -> None:
    codec = DIALECTS["openai"].codecs[Surface.RESPONSES]
    call = responses.parse({"input": "x", "stream": True})
    translator = codec.translator(call, target=target(), called=None)
    response = {"id": "r", "output": [], "usage": ANTHROPICS, **members}
    last = event({"type": kind, "response": response})
    *_, piece = _pieces(translator, [*first_events("responses"), last])
    assert isinstance(piece.failed, ProviderError)
    assert piece.reported == TokenUsage(4241, 7)


@pytest.mark.parametrize(
    "members",
    [{"status": "failed", "error": None}, {"status": "failed"}, {"status": "cancelled"},
     {"status": "incomplete", "incomplete_details": {"reason": "abort"}}],
)  # fmt: skip
def test_a_whole_response_that_has_failed_is_a_failure(members: Json) -> None:
    codec = DIALECTS["openai"].codecs[Surface.RESPONSES]
    body = dumps({"id": "r", "output": [], "usage": ANTHROPICS, **members}).encode()
    with pytest.raises(FailedAnswer) as caught:
        codec.answer(body, target=target())
    assert isinstance(caught.value.problem, ProviderError)
    assert caught.value.reported == TokenUsage(4241, 7)
