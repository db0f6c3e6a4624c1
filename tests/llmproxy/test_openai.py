"""OpenAI's dialect: what is sent, and what each event means."""

import json
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, ClassVar

import pytest
import time_machine
from django.utils.http import http_date
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from config.platform.problems.problem import Problem
from llmproxy.dialects import refusals
from llmproxy.dialects.failures import failure_of
from llmproxy.dialects.openai import ChatCompletions
from llmproxy.dialects.openai.usage import usage_for_caller
from llmproxy.dialects.protocol import (
    Piece,
    ProviderError,
    ProviderRejected,
    ProviderTimeout,
    ProviderUnavailable,
    TokenUsage,
    Translator,
)
from llmproxy.dialects.reading import usage_of
from llmproxy.dialects.refusals import ContextTooLong
from llmproxy.dialects.sse import Event, EventParser
from llmproxy.dialects.usage import reported
from llmproxy.requests.chat import Chat, parse
from tests.effort import takes_at_most
from tests.llmproxy.targets import refusal_of, target

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
USAGE = {
    "prompt_tokens": 12,
    "completion_tokens": 7,
    "total_tokens": 19,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
TOO_LONG = "This model's maximum context length is 4096 tokens."
WITHHELD = "Its reason is not shown"
FINISHED = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def chat(**members: Any) -> Chat:
    return parse({"messages": [{"role": "user", "content": "hi"}], **members}, stream=None)


def event(data: Any) -> Event:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return Event(b"data: " + text + b"\n\n", text, None)


def translator(asked: Chat, *, called: str | None = None) -> Translator:
    return ChatCompletions().translator(asked, target=target(), called=called)


def answered(body: bytes) -> tuple[dict[str, Any], TokenUsage | None, int]:
    return ChatCompletions().answer(body, target=target())


def piece(data: Any, *, include_usage: bool = False) -> Piece:
    options = {"stream_options": {"include_usage": True}} if include_usage else {}
    return translator(chat(stream=True, **options)).piece(event(data))


def translated(data: Any, *, called: str | None = None) -> Piece:
    return translator(chat(stream=True), called=called).piece(event(data))


def chunk_of(piece: Piece) -> Any:
    """The one chunk that a caller gets."""
    assert piece.forward.startswith(b"data: ")
    assert piece.forward.count(b"\n\n") == 1
    return json.loads(piece.forward.removeprefix(b"data: "))


def _strict(data: bytes) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(data, parse_constant=refuse)


class TestOutgoing:
    def test_the_request_has_the_credential_in_its_header_only(self, settings) -> None:
        asked = chat(
            stream=True, user="someone", metadata={"a": "b"}, model="public", max_tokens=99
        )
        outgoing = ChatCompletions().outgoing(asked, target=target(), output_limit=40)
        body = json.loads(outgoing.body)
        assert body == {
            "messages": [{"role": "user", "content": "hi"}],
            "model": "theirs",
            "max_tokens": 40,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        assert outgoing.url == f"{settings.LLM_BASE_URL}/chat/completions"
        assert outgoing.headers["Authorization"] == f"Bearer {settings.LLM_API_KEY()}"
        assert settings.LLM_API_KEY() not in outgoing.url + outgoing.body.decode()

    @pytest.mark.parametrize(
        "thoughts",
        [
            # DeepSeek and Qwen; servers of vLLM; OpenRouter; Mistral.
            {"reasoning_content": "Hm."},
            {"reasoning": "Hm.", "reasoning_content": "Hm."},
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "c2ln", "index": 0}]},
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]},
        ],
    )
    @pytest.mark.parametrize(
        "host",
        ["https://api.deepseek.test/v1", "https://api.openai.com/v1", "https://api.mistral.ai/v1"],
    )
    def test_thoughts_go_back_to_servers_that_write_them(
        self, thoughts: dict[str, Any], host: str
    ) -> None:
        # The signature is Gemini's.
        signed = {"google": {"thought_signature": "c2ln"}}
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        bare = {"role": "assistant", "content": None, "tool_calls": [call]}
        answer = {**bare, "tool_calls": [{**call, "extra_content": signed}], **thoughts}
        result = {"role": "tool", "tool_call_id": "c1", "content": "42"}
        asked = parse({"messages": [answer, result]}, stream=False)
        to = target()._replace(base_url=host)
        sent = json.loads(ChatCompletions().outgoing(asked, target=to, output_limit=40).body)
        kept = answer if "deepseek" in host else bare
        assert sent["messages"] == [kept, result]

    def test_marks_for_anthropics_cache_are_not_sent(self) -> None:
        mark = {"cache_control": {"type": "ephemeral"}}
        part = {"type": "text", "text": "hi"}
        function = {"type": "function", "function": {"name": "f"}}
        messages = [{"role": "user", "content": [{**part, **mark}], **mark}]
        asked = parse({"messages": messages, "tools": [{**function, **mark}]}, stream=False)
        sent = json.loads(ChatCompletions().outgoing(asked, target=target(), output_limit=40).body)
        assert sent["messages"] == [{"role": "user", "content": [part]}]
        assert sent["tools"] == [function]

    def test_a_one_shot_request_has_no_stream_member(self) -> None:
        body = json.loads(
            ChatCompletions().outgoing(chat(), target=target(model="m"), output_limit=40).body
        )
        assert body == {
            "messages": [{"role": "user", "content": "hi"}],
            "model": "m",
            "max_tokens": 40,
        }


class TestEvents:
    def test_text_is_forwarded_unchanged_and_counted(self) -> None:
        got = piece({"choices": [{"delta": {"content": "é!"}, "finish_reason": None}]})
        assert (got.size, got.finished, got.ended) == (3, False, False)
        assert (
            json.loads(got.forward.removeprefix(b"data: "))["choices"][0]["delta"]["content"]
            == "é!"
        )

    @pytest.mark.parametrize(
        "delta",
        [
            {"refusal": "no"},
            {"reasoning_content": "hm"},
            {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
            {"reasoning_details": [{"type": "reasoning.text", "text": "é"}]},
            {
                "reasoning_details": [
                    {"summary": "h"},
                    {"text": "m", "index": 1},
                    {"data": "ciphertext"},
                ]
            },
            {"reasoning_details": [{"text": "hm"}], "reasoning": "hm"},
            {"reasoning_details": [{"text": "hm"}], "reasoning": None},
            {"reasoning_details": [7, {"text": 7, "summary": None}, {"text": "hm"}]},
            {"audio": {"id": "a", "transcript": "hm", "data": "UklGRg=="}},
            {"audio": {"transcript": "", "data": "A" * 900}},
        ],
    )
    def test_all_output_that_a_provider_charges_is_counted(self, delta: dict[str, Any]) -> None:
        assert piece({"choices": [{"delta": delta}]}).size == 2

    @pytest.mark.parametrize(
        "delta",
        [{"audio": "hm"}, {"audio": {"id": "a", "expires_at": 7}}, {"reasoning_details": {"text": "hm"}}],
    )  # fmt: skip
    def test_unknown_members_count_as_no_output(self, delta: dict[str, Any]) -> None:
        got = piece({"choices": [{"delta": delta}]})
        assert (got.size, got.failed) == (0, None)

    def test_half_a_character_is_counted_and_forwarded_unchanged(self) -> None:
        data = b'{"choices": [{"delta": {"content": "\\ud83d"}}]}'
        got = piece(data)
        assert (got.size, got.failed) == (1, None)
        assert data in got.forward

    @pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e400"])
    @pytest.mark.parametrize("text", [b"x", b"\\ud83d"])
    @pytest.mark.parametrize("called", [None, "house"])
    def test_numbers_that_are_no_json_are_forwarded_as_null(
        self, number: bytes, text: bytes, called: str | None
    ) -> None:
        data = b'{"choices": [{"delta": {"content": "%s"}, "logprobs": [0.5, %s]}]}'
        got = translator(chat(), called=called).piece(event(data % (text, number)))
        (choice,) = _strict(got.forward.removeprefix(b"data: "))["choices"]
        # An exponent that no float can hold is JSON, and may stay.
        kept = number == b"1e400" and called is None
        assert choice == {
            "delta": {"content": json.loads(b'"%s"' % text)},
            "logprobs": [0.5, inf if kept else None],
        }

    @pytest.mark.parametrize(
        "data",
        [
            b'\xef\xbb\xbf{"choices": [{"delta": {"content": "x"}}]}',
            b'{"choices": [{"delta": {"content": "\xed\xa0\xbd"}}]}',
        ],
    )
    def test_bytes_that_clients_cannot_read_are_rewritten(self, data: bytes) -> None:
        got = piece(data).forward.removeprefix(b"data: ")
        assert json.loads(got.decode("ascii")) == json.loads(
            data.decode("utf-8-sig", "surrogatepass")
        )

    @pytest.mark.parametrize(
        "block",
        [
            b"data: %s\n\n",
            b"data:%s\n\n",
            b"data: %s\r\n\r\n",
            b"data: %s\r\r",
            b"data: %s",
            b"\xef\xbb\xbfdata: %s\n\n",
            b": PROVIDER NAME PROCESSING\ndata: %s\n\n",
            b"data: %s\n: PROVIDER NAME PROCESSING\n\n",
            b"event: completion\nid: 7\nretry: 1\ndata: %s\n\n",
            b"data: %s\n:\n\n",
            b"data: %s\nid\n\n",
            b"data: %s\n:",
            b"data:\ndata: %s\ndata\n\n",
        ],
    )
    def test_only_the_data_of_an_event_is_forwarded(self, block: bytes) -> None:
        data = '{"choices":  [{"delta": {"content": "é"}}]}'.encode()
        parser, translate = EventParser(), translator(chat())
        (got,) = map(translate.piece, [*parser.feed(block % data), *parser.finish()])
        assert got.forward == b"data: %s\n\n" % data

    def test_data_of_several_lines_is_forwarded_in_one(self) -> None:
        block = b'data: {"choices": [\ndata: {"delta": {"content": "x"}}\ndata: ]}\n\n'
        ((event,), translate) = EventParser().feed(block), translator(chat())
        expected = b'data: {"choices": [ {"delta": {"content": "x"}} ]}\n\n'
        assert translate.piece(event).forward == expected

    def test_nan_in_a_text_is_forwarded_unchanged(self) -> None:
        data = b'{"choices": [{"delta":  {"content": "NaN, Infinity"}}]}'
        assert data in piece(data).forward

    def test_a_role_alone_is_no_output(self) -> None:
        assert piece({"choices": [{"delta": {"role": "assistant", "content": ""}}]}).size == 0

    def test_the_usage_chunk_is_kept_until_the_end(self) -> None:
        chunk = {"choices": [], "usage": USAGE}
        for include_usage in (False, True):
            got = piece(chunk, include_usage=include_usage)
            assert (got.forward, got.reported) == (b"", TokenUsage(12, 7, 4, 3))

    @pytest.mark.parametrize(
        "members",
        [
            {"usage": None},
            {"usage": {}},
            {"usage": {"prompt_tokens": 1.5, "completion_tokens": 2}},
            {"usage": {"prompt_tokens": -1, "completion_tokens": 2}},
            {"prompt_filter_results": []},
        ],
    )
    def test_chunks_without_a_choice_are_not_forwarded(self, members: dict[str, Any]) -> None:
        assert piece({"choices": [], **members}) == Piece()

    @pytest.mark.parametrize("within", [False, True])
    @pytest.mark.parametrize("called", [None, "house"])
    def test_usage_on_a_content_chunk_is_taken_off_it(
        self, within: bool, called: str | None
    ) -> None:
        choice = {"delta": {"content": "x"}, "finish_reason": "stop"}
        chunk = {"choices": [{**choice, "usage": USAGE} if within else choice]}
        got = translated(chunk if within else {**chunk, "usage": USAGE}, called=called)
        assert (got.reported, got.size, got.finished) == (TokenUsage(12, 7, 4, 3), 1, True)
        name = {"model": called} if called else {}
        assert chunk_of(got) == {"choices": [choice], **name}

    def test_done_ends_the_stream_and_is_not_forwarded_before_settlement(self) -> None:
        translate = translator(chat())
        translate.piece(event(FINISHED))
        assert translate.piece(event(b"[DONE]")) == Piece(ended=True)

    def test_an_answer_without_a_finish_reason_is_broken_although_its_stream_ends(self) -> None:
        translate = translator(chat())
        translate.piece(event({"choices": [{"delta": {"content": "Half"}, "finish_reason": ""}]}))
        got = translate.piece(event(b"[DONE]"))
        assert (type(got.failed), got.ended) == (ProviderError, False)

    def test_a_role_is_sent_once(self) -> None:
        translate = translator(chat())
        given = [{"index": at, "delta": {"role": "assistant", "content": "x"}} for at in (0, 1)]
        first = translate.piece(event({"choices": given}))
        assert first.forward == event({"choices": given}).raw
        again = translate.piece(event({"choices": given[1:]}))
        assert chunk_of(again) == {"choices": [{"index": 1, "delta": {"content": "x"}}]}
        assert again.size == 1

    @pytest.mark.parametrize(
        ("delta", "forwarded"),
        [
            ({"content": [{"type": "text", "text": "é"}, "!"]}, {"content": "é!"}),
            ({"content": {"type": "text", "text": "hey"}}, {"content": "hey"}),
            ({"content": []}, {"content": ""}),
            ({"content": [{"type": "reference", "reference_ids": [1]}]}, {"content": ""}),
            (
                {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
                {"content": "", "reasoning_content": "hm"},
            ),
            (
                {"content": [{"type": "thinking", "thinking": "m"}], "reasoning_content": "h"},
                {"content": "", "reasoning_content": "hm"},
            ),
            ({"refusal": [{"text": None}]}, {"refusal": ""}),
        ],
    )
    def test_a_text_in_parts_is_forwarded_as_one(
        self, delta: dict[str, Any], forwarded: dict[str, Any]
    ) -> None:
        got = translated({"choices": [{"index": 0, "delta": delta}]})
        assert chunk_of(got)["choices"][0]["delta"] == forwarded
        assert got.size == sum(len(text.encode()) for text in forwarded.values())

    @pytest.mark.parametrize("arguments", [{"city": "Köln"}, {}, ["a"]])
    def test_arguments_that_are_an_object_are_forwarded_as_a_text(self, arguments: Any) -> None:
        call = {"index": 0, "function": {"name": "f", "arguments": arguments}}
        got = translated({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
        (forwarded,) = chunk_of(got)["choices"][0]["delta"]["tool_calls"]
        written = forwarded["function"]["arguments"]
        assert json.loads(written) == arguments
        assert got.size == len("f") + len(written)

    def test_the_words_of_azures_filter_about_a_prompt_are_not_for_callers(self) -> None:
        assert (
            translated({"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}) == Piece()
        )

    def test_members_of_chunks_without_a_choice_go_on_with_the_next(self) -> None:
        translate = translator(chat(stream=True, stream_options={"include_usage": True}))
        filtered = {"prompt_filter_results": [{"prompt_index": 0}]}
        empty = translate.piece(event({"choices": [], "id": "", "model": "", **filtered}))
        assert (empty.forward, empty.size) == (b"", 0)
        word = {"id": "1", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
        assert chunk_of(translate.piece(event(word))) == {**word, **filtered}
        plain = event(word)
        assert translate.piece(plain).forward == plain.raw
        timings = {"timings": {"prompt_ms": 30.5}, "cost": 5}
        last = translate.piece(event({"id": "1", "choices": [], "usage": USAGE, **timings}))
        assert last.forward == b""
        ending, done = translate.ending(TokenUsage(12, 7, 4, 3)).split(b"\n\n", 1)
        told = json.loads(ending.removeprefix(b"data: "))
        assert (told["choices"], told["timings"]) == ([], {"prompt_ms": 30.5})
        assert ("cost" in told, done) == (False, b"data: [DONE]\n\n")

    def test_a_text_beside_no_choice_counts_once_callers_get_it(self) -> None:
        translate = translator(chat())
        read = [
            translate.piece(event({"choices": [], "remark": each})) for each in ("a word", "last")
        ]
        assert read == [Piece(), Piece()]
        chunk = {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}
        said = translate.piece(event(chunk))
        assert (b"last" in said.forward, said.size) == (True, len("lastHi"))
        # Nobody hears what comes after the last choice, so the report stays as it was.
        assert translate.piece(event({"choices": [], "remark": "more"})) == Piece()

    def test_a_comment_becomes_our_keep_alive(self) -> None:
        got = translator(chat()).piece(Event(b": PROVIDER NAME PROCESSING\n\n", None, None))
        assert got.forward == b": keep-alive\n"
        assert translator(chat()).piece(Event(b"\n", None, None)) == Piece()

    @pytest.mark.parametrize(
        "data",
        [
            b"not json",
            b"[1]",
            b"7",
            b"[" * 100_000,
            {"error": {"message": "secret words"}},
            {"choices": [7]},
            {"choices": [{"delta": {"content": 7}}]},
        ],
    )
    def test_an_invalid_event_is_a_failure(self, data: Any) -> None:
        got = piece(data)
        assert isinstance(got.failed, ProviderError)
        assert "secret" not in got.failed.detail


class TestErrorEvents:
    @pytest.mark.parametrize(
        ("error", "status"),
        [
            ({"error": {"message": "Busy.", "type": "rate_limit_exceeded"}}, 503),
            ({"error": {"message": "Busy.", "code": "rate_limit_exceeded"}}, 503),
            ({"error": {"message": "Busy.", "code": 429, "status": "RESOURCE_EXHAUSTED"}}, 503),
            ({"error": {"message": "Busy.", "code": "503"}}, 503),
            ({"error": {"message": "Busy.", "type": "overloaded_error"}}, 503),
            ({"error": {"message": "Late.", "status": "DEADLINE_EXCEEDED"}}, 504),
            ({"error": {"message": "Wrong.", "type": "server_error", "code": None}}, 502),
            ({"error": {"message": "Wrong.", "code": 20015}}, 502),
            ({"error": "Wrong."}, 502),
            ({"object": "error", "message": "Wrong.", "code": 50001}, 502),
            ({"error": {"message": "No.", "type": "invalid_request_error"}}, 400),
            ({"object": "error", "message": "No.", "type": "BadRequestError", "code": 400}, 400),
            # Our account is nobody's fault but ours.
            ({"error": {"message": "No.", "type": "insufficient_quota"}}, 502),
        ],
    )
    def test_an_error_event_is_the_same_problem_as_a_refusal(
        self, error: dict[str, Any], status: int
    ) -> None:
        got = piece(error)
        assert got.failed is not None
        assert got.failed.status == status
        assert (got.failed.detail == "No.") == (status == 400)

    @pytest.mark.parametrize(
        "error",
        [
            {"error": {"message": "Context length exceeded", "type": "server_error"}},
            {"error": "the request exceeds the available context size"},
            {"error": {"message": "No.", "code": "context_length_exceeded"}},
            {"object": "error", "message": "The maximum context length is 8 tokens.", "code": 400},
        ],
    )
    def test_a_context_that_is_too_long_is_said_with_the_providers_words(self, error: Any) -> None:
        got = piece(error)
        assert isinstance(got.failed, ContextTooLong)
        said = error.get("error", error)
        assert got.failed.detail == (said if isinstance(said, str) else said["message"])

    def test_too_many_tokens_a_minute_are_no_context(self) -> None:
        got = piece({"error": {"message": "Too many tokens.", "code": 429}})
        assert isinstance(got.failed, ProviderUnavailable)

    def test_the_data_of_an_event_called_error_is_the_error(self) -> None:
        text = b'{"message": "No.", "code": 400}'
        got = translator(chat()).piece(Event(b"", text, "error"))
        assert got.failed is not None
        assert got.failed.detail == "No."

    @pytest.mark.parametrize(
        ("members", "wait"),
        [
            ({"retry_after": 7}, "7"),
            ({"retry_after": 1.5}, "2"),
            ({"details": [{"@type": "a"}, {"@type": "b", "retryDelay": "12.4s"}]}, "13"),
            ({"retry_after": "soon"}, None),
            ({"retry_after": -1}, None),
            ({"retry_after": 1e400}, None),
            ({"details": "soon"}, None),
            ({}, None),
        ],
    )
    def test_the_wait_that_it_asks_for_is_told(
        self, members: dict[str, Any], wait: str | None
    ) -> None:
        got = piece({"error": {"message": "Busy.", "code": 429, **members}})
        assert got.failed is not None
        assert got.failed.headers.get("Retry-After") == wait

    def test_names_of_our_account_are_removed_from_its_message(self) -> None:
        got = piece({"error": {"message": "No model m for org-a1B2c3.", "code": 404}})
        assert got.failed is not None
        assert got.failed.detail == "No model m for …"


def thought(tokens: float) -> dict[str, Any]:
    return {"completion_tokens_details": {"reasoning_tokens": tokens}}


COUNTS = st.integers(0, 10_000) | st.integers(0, 10_000).map(float)
DETAILS = st.none() | st.dictionaries(
    st.sampled_from(["reasoning_tokens", "cached_tokens", "audio_tokens"]), COUNTS | st.none()
)
USAGES = st.fixed_dictionaries(
    {"prompt_tokens": COUNTS, "completion_tokens": COUNTS},
    optional={
        "total_tokens": COUNTS | st.none(),
        "completion_tokens_details": DETAILS,
        "prompt_tokens_details": DETAILS,
        "num_search_queries": COUNTS,
    },
)


class TestUsage:
    def test_an_explicit_zero_is_a_report(self) -> None:
        assert reported({"prompt_tokens": 0, "completion_tokens": 0}) == TokenUsage(0, 0)

    @pytest.mark.parametrize(
        "usage",
        [None, {}, [], {"prompt_tokens": 1}, {"prompt_tokens": -1, "completion_tokens": 1},
         {"prompt_tokens": True, "completion_tokens": 1}, {"prompt_tokens": "1", "completion_tokens": 1}],
    )  # fmt: skip
    def test_invalid_usage_is_no_report(self, usage: Any) -> None:
        assert reported(usage) is None

    @pytest.mark.parametrize(
        ("members", "known"),
        [
            # xAI's, with and without a total.
            ({"completion_tokens": 1, "total_tokens": 303, **thought(290)}, (12, 291, 0, 290)),
            ({"completion_tokens": 1, **thought(290)}, (12, 291, 0, 290)),
            # Google's, which has no details.
            ({"completion_tokens": 5, "total_tokens": 57}, (12, 45)),
            # Most include it.
            ({"completion_tokens": 291, "total_tokens": 303, **thought(290)}, (12, 291, 0, 290)),
            ({"completion_tokens": 9, "total_tokens": 0}, (12, 9)),
            ({"completion_tokens": 9.0, "total_tokens": 21.0, **thought(4.0)}, (12, 9, 0, 4)),
        ],
    )  # fmt: skip
    def test_reasoning_beside_the_output_is_output(
        self, members: dict[str, Any], known: tuple[int, ...]
    ) -> None:
        assert reported({"prompt_tokens": 12, **members}) == TokenUsage(*known)

    @pytest.mark.parametrize("total", [None, 14, 5_014])
    def test_cached_input_beside_the_prompt_is_input(self, total: int | None) -> None:
        cached = {"prompt_tokens_details": {"cached_tokens": 5_000}}
        usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": total, **cached}
        assert reported(usage) == TokenUsage(5_009, 5, 5_000)

    @given(USAGES)
    def test_callers_are_told_what_is_metered_in_whole_numbers(self, usage: dict[str, Any]) -> None:
        known = reported(usage)
        assert known is not None
        given_to_callers = usage_for_caller(usage, known)
        assert reported(given_to_callers) == known
        assert given_to_callers["total_tokens"] == known.input + known.output
        counts = [
            given_to_callers,
            *(each for each in given_to_callers.values() if isinstance(each, dict)),
        ]
        assert not any(isinstance(value, float) for count in counts for value in count.values())
        # Counts that only the provider knows stay.
        assert usage.keys() <= given_to_callers.keys()

    @pytest.mark.parametrize(
        "details",
        [{}, {"prompt_tokens_details": None}, {"prompt_tokens_details": {"cached_tokens": 0}}],
    )
    def test_deepseeks_hits_of_its_cache_are_cached_input(self, details: dict[str, Any]) -> None:
        hits = {"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 26}
        usage = {"prompt_tokens": 90, "completion_tokens": 5, **hits, **details}
        known = TokenUsage(90, 5, 64)
        assert reported(usage) == known
        given = usage_for_caller(usage, known)["prompt_tokens_details"]
        assert given["cached_tokens"] == 64

    def test_invalid_details_count_as_zero(self) -> None:
        usage = {"prompt_tokens": 5, "completion_tokens": 5, "prompt_tokens_details": None,
                 "completion_tokens_details": {"reasoning_tokens": None}}  # fmt: skip
        assert reported(usage) == TokenUsage(5, 5, 0, 0)


class TestAnswers:
    def test_a_text_in_parts_and_reasoning_beside_the_output_are_put_into_one_shape(self) -> None:
        parts = [{"type": "thinking", "thinking": [{"text": "hm"}]}, {"type": "text", "text": "so"}]
        usage = {"prompt_tokens": 2.0, "completion_tokens": 1, "total_tokens": 9}
        body = {"choices": [{"message": {"content": parts}}], "usage": usage}
        answer, known, size = answered(json.dumps(body).encode())
        message = {"content": "so", "reasoning_content": "hm"}
        assert answer["choices"] == [{"message": message, "finish_reason": "stop"}]
        assert (known, size) == (TokenUsage(2, 7), 4)
        counts = {"prompt_tokens": 2, "completion_tokens": 7, "total_tokens": 9}
        assert answer["usage"].items() >= counts.items()

    @pytest.mark.parametrize(
        "members",
        [
            {"prompt_tokens_details": {"cache_write_tokens": 3}},
            {"prompt_tokens_details": {"cache_creation_tokens": 3}},
            {"prompt_tokens_details": {"cache_creation_input_tokens": 3, "cached_tokens": 0}},
            {"cache_creation_input_tokens": 3, "prompt_tokens_details": None},
        ],
    )
    def test_cache_writes_are_read_from_wherever_servers_write_them(
        self, members: dict[str, Any]
    ) -> None:
        known = reported({"prompt_tokens": 9, "completion_tokens": 1, **members})
        assert known == TokenUsage(9, 1, cache_write=3)
        assert usage_of(known)["prompt_tokens_details"]["cache_write_tokens"] == 3

    def test_the_cost_of_a_call_at_the_provider_reaches_no_caller(self) -> None:
        details = {"cached_tokens": 4, "audio_cost": 0.1}
        cost = {"cost": 0.5, "cost_details": {"upstream_inference_cost": 0.4}, "is_byok": True,
                "cost_in_usd_ticks": 7, "prompt_tokens_details": details, "request_id": "r"}  # fmt: skip
        chunk = {"choices": [{"message": {"content": "four"}}], "usage": {**USAGE, **cost}}
        answer, known, _ = answered(json.dumps(chunk).encode())
        assert answer["usage"] == USAGE | {"request_id": "r"}
        assert known is not None
        stream = translator(chat(stream=True, stream_options={"include_usage": True}))
        stream.piece(event({"choices": [], "usage": {**USAGE, **cost}}))
        assert b"cost" not in (ending := stream.ending(known))
        assert b"request_id" in ending

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            ({"object": "error", "message": "Too many images.", "code": 400}, ProviderRejected),
            ({"error": {"message": "Busy.", "type": "overloaded_error"}}, ProviderUnavailable),
            ({"error": "Something."}, ProviderError),
        ],
    )
    def test_an_error_in_place_of_an_answer_is_told_as_one(
        self, error: dict[str, Any], kind: type[Problem]
    ) -> None:
        with pytest.raises(kind) as caught:
            answered(json.dumps(error).encode())
        assert caught.value.detail == error.get("message", kind.default_detail)

    def test_a_whole_answer_is_passed_on_with_its_usage_and_size(self) -> None:
        choice = {"message": {"content": "four"}, "finish_reason": "stop"}
        answer = {"choices": [choice], "usage": USAGE}
        assert answered(json.dumps(answer).encode()) == (answer, TokenUsage(12, 7, 4, 3), 4)

    @pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-1e400"])
    def test_numbers_that_are_no_json_become_null(self, number: bytes) -> None:
        body = b'{"choices": [{"message": {"content": "\\ud83d"}, "logprobs": [%s, 0.5]}]}'
        answer, _, size = answered(body % number)
        assert (answer["choices"][0]["logprobs"], size) == ([None, 0.5], 1)

    @pytest.mark.parametrize(
        "body", [b"", b"<html>", b"{}", b"[]", b'{"choices": []}', b'{"choices": [7]}']
    )
    def test_an_invalid_answer_is_a_failure(self, body: bytes) -> None:
        with pytest.raises(ProviderError):
            answered(body)


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (400, ProviderRejected), (404, ProviderRejected), (413, ProviderRejected), (422, ProviderRejected),
            (401, ProviderError), (403, ProviderError), (500, ProviderError), (302, ProviderError),
            (429, ProviderUnavailable), (503, ProviderUnavailable), (529, ProviderUnavailable),
            (504, ProviderTimeout),
        ],
    )  # fmt: skip
    def test_only_the_callers_faults_are_shown_as_such(self, status: int, kind: type) -> None:
        assert type(refusal_of(status, {}, b"")) is kind

    def test_the_providers_message_on_a_bad_request_is_shown(self) -> None:
        body = json.dumps({"error": {"message": "Too many images."}}).encode()
        assert refusal_of(400, {}, body).detail == "Too many images."

    @pytest.mark.parametrize(
        "error",
        [
            {"message": "This model's maximum context length is 8192 tokens. However, you asked for 9000."},
            {"message": "Your input exceeds the context window of this model."},
            {"message": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"},
            {"message": "prompt is too long: 212345 tokens > 200000 maximum"},
            {"message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."},
            {"message": "This model's maximum prompt length is 131072 but the request contains 200000 tokens."},
            {"message": "Please reduce the length of the messages or completion."},
            {"message": "No.", "code": "context_length_exceeded"},
            {"message": "the request exceeds it", "type": "exceed_context_size_error", "code": 400},
        ],
    )  # fmt: skip
    def test_a_context_that_is_too_long_has_openais_code(self, error: dict[str, Any]) -> None:
        refusal = refusal_of(400, {}, json.dumps({"error": error}).encode())
        assert (refusal.code, refusal.sdk_code) == ("provider_rejected", "context_length_exceeded")
        assert refusal.detail == error["message"]

    @pytest.mark.parametrize("in_stream", [False, True])
    @pytest.mark.parametrize(
        ("body", "status", "detail", "sdk_code"),
        [
            ({"object": "error", "message": TOO_LONG, "type": "BadRequestError", "code": 400}, 400, TOO_LONG,
             "context_length_exceeded"),
            ({"object": "error", "message": "No such image.", "type": "BadRequestError", "code": 400}, 400,
             "No such image.", None),
            ({"error": "`temperature` must be strictly positive", "error_type": "validation"}, 422,
             "`temperature` must be strictly positive", None),
            ({"error": "model 'llama' not found"}, 404, "model 'llama' not found", None),
            ({"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000"}, 422,
             "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
             "context_length_exceeded"),
            ({"detail": [{"loc": ["body", "messages", 0, "content"], "msg": "Field required", "input": "secret"},
                         {"msg": "Too much"}]}, 422, "body.messages.0.content: Field required; Too much", None),
            ({"detail": "No tools here."}, 422, "No tools here.", None),
            ({"object": "error", "message": {"detail": [{"loc": ["body", "n"], "msg": "Not allowed"}]}}, 422,
             "body.n: Not allowed", None),
            ({"message": "Prompt is too long: 9000 tokens."}, 400, "Prompt is too long: 9000 tokens.",
             "context_length_exceeded"),
        ],
    )  # fmt: skip
    def test_an_error_is_read_in_the_form_of_each_server(
        self, body: dict[str, Any], status: int, detail: str, sdk_code: str | None, in_stream: bool
    ) -> None:
        if in_stream:
            refusal = failure_of({"code": status, **body}, key="a-key-of-the-service")
        else:
            refusal = refusal_of(status, {}, json.dumps(body).encode())
        assert (refusal.code, refusal.sdk_code) == ("provider_rejected", sdk_code)
        assert refusal.detail == detail

    @pytest.mark.parametrize(
        "error",
        [
            {"error": "Input validation error: `stop` has too many words"},
            {"error": "`stop` has too many words", "error_type": "validation"},
        ],
    )
    def test_a_text_as_first_event_is_told_as_a_refusal_is(self, error: dict[str, Any]) -> None:
        failed = piece(error).failed
        assert isinstance(failed, ProviderRejected)
        assert failed.detail == error["error"]
        assert isinstance(piece({"error": "Something broke"}).failed, ProviderError)

    @pytest.mark.parametrize(
        "body",
        [
            "null", "7", "[]", "[7]", '"no"', "{}", '{"error": []}', '{"error": [7]}', '{"error": {"message": 7}}',
            '{"detail": [7, {"msg": 7}, {"loc": 7}]}', '{"detail": {"detail": {}}}', "[" * 100_000,
        ],
    )  # fmt: skip
    def test_an_error_in_no_known_form_has_our_own_detail(self, body: str) -> None:
        assert refusal_of(400, {}, body.encode()).detail == ProviderRejected.default_detail

    @pytest.mark.parametrize(
        "body",
        [
            {"error": "Incorrect API key provided."},
            {"detail": "Invalid API key"},
            {"object": "error", "message": "No.", "type": "authentication_error"},
        ],
    )
    def test_a_refused_key_is_known_in_every_form(self, body: dict[str, Any]) -> None:
        assert type(refusal_of(400, {}, json.dumps(body).encode())) is ProviderError

    @pytest.mark.parametrize("message", ["The name is too long.", "Unknown word 'context length'."])
    def test_other_refusals_have_no_sdk_code(self, message: str) -> None:
        body = json.dumps({"error": {"message": message}}).encode()
        assert refusal_of(400, {}, body).sdk_code is None

    def test_a_too_large_request_gets_its_own_detail(self) -> None:
        assert "send less" in refusal_of(413, {}, b"<html>").detail

    @pytest.mark.parametrize(
        "error",
        [
            {"message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT"},
            {"message": "Incorrect API key provided: sk-…"},
            {"message": "Your api_key has expired"},
            {"message": "No.", "code": "invalid_api_key"},
            {"message": "No.", "type": "authentication_error"},
            {"message": "You exceeded your current quota.", "code": "insufficient_quota"},
            {"message": "No.", "type": "insufficient_quota"},
            {"message": "No.", "code": "billing_hard_limit_reached"},
            {"message": "No.", "code": "account_deactivated"},
            {"message": "No.", "code": "organization_restricted", "type": "invalid_request_error"},
            {"message": "Billing hard limit has been reached"},
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("listed", [False, True])
    def test_a_refused_key_or_account_is_not_the_callers_fault_whatever_the_status(
        self, error: dict[str, str], listed: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        refusals._last_logged["key"] = ""
        body = json.dumps([{"error": error}] if listed else {"error": error}).encode()
        refusal = refusal_of(400, {}, body)
        assert type(refusal) is ProviderError
        assert refusal.detail == ProviderError.default_detail
        assert "provider_refuses_credential" in caplog.messages

    @pytest.mark.parametrize(
        "message", ["Invalid value: 'key'.", "The schema of api_key has no type.", "Too long."]
    )
    def test_other_messages_about_keys_are_shown(self, message: str) -> None:
        body = json.dumps({"error": {"message": message}}).encode()
        assert type(refusal_of(400, {}, body)) is ProviderRejected

    def test_messages_with_the_credential_are_not_shown(self, settings) -> None:
        body = json.dumps({"error": {"message": f"Bad key {settings.LLM_API_KEY()}"}}).encode()
        refusal = refusal_of(400, {}, body)
        assert refusal.detail == f"{ProviderRejected.default_detail} {WITHHELD} (status 400)."

    @pytest.mark.parametrize(
        "message",
        [
            "Incorrect credential: sk-proj-…-{key}.",
            "The credential that begins with {key:.6} may not do this.",
            "You use {key:.4} for this, which may not do this.",
            "The credential ending in {end}, may not do this.",
            "The credential '{masked}' may not do this.",
            "{key:.3}...{end} may not do this.",
            "Header was 'Authorization: Bearer of-another'.",
        ],
    )
    def test_messages_with_a_part_of_the_credential_are_not_shown(
        self, settings, message: str
    ) -> None:
        key = "kkqpA7sT0uVw3xYzB4cD8lPk"
        settings.LLM_API_KEY = lambda: key
        message = message.format(key=key, end=key[-4:], masked="kkqp****************8lPk")
        refusal = refusal_of(422, {}, json.dumps({"error": {"message": message}}).encode())
        assert not any(part in refusal.detail for part in ("kkq", "A7s", "lPk", "of-another"))

    @pytest.mark.parametrize(
        ("key", "message"),
        [
            ("sk-proj-a1B2c3D4e5F6g7", "Invalid schema for function 'task-progress'."),
            ("sk-ant-api03-a1B2c3D4e5", "The client-api tool is invalid."),
            ("EMPTY", "messages must not be EMPTY"),
            ("none", "tool_choice: Input should be 'none' or 'auto'"),
            ("token-abc123def456", "this exceeds the token limit"),
            ("dummy-token-for-local", "the token count exceeds the local limit of this dummy"),
        ],
    )
    def test_common_prefixes_and_words_are_no_part_of_the_credential(
        self, settings, key: str, message: str
    ) -> None:
        settings.LLM_API_KEY = lambda: key
        body = json.dumps({"error": {"message": message}}).encode()
        assert refusal_of(400, {}, body).detail == message
        told = json.dumps([{"error": {"message": message}}]).encode()
        assert refusal_of(400, {}, told).detail == message

    @pytest.mark.parametrize(
        ("message", "problem"),
        [
            ("Your organization's credit balance is too low, it's so.", ProviderError),
            ("Invalid schema for 'f': 'credit balance' is not of type 'object'.", ProviderRejected),
            ('"usage limits" is no member', ProviderRejected),
        ],
    )
    def test_quoted_parts_of_a_request_do_not_concern_our_account(
        self, message: str, problem: type
    ) -> None:
        body = json.dumps({"error": {"message": message}}).encode()
        assert type(refusal_of(400, {}, body)) is problem

    @pytest.mark.parametrize(
        ("message", "told"),
        [
            ("Project `proj_a1B2c3` has no model m.", "… has no model m."),
            ("No model m for org-a1B2c3.", "No model m for …"),
            ("No model m for org-ABCDEF.", "No model m for …"),
            ("No model m for org-abcdef, nor for proj_ABCDEF.", "No model m for …, nor for …"),
            ("The organization AcmeCorp has no model m.", "The … has no model m."),
            ("Limit reached in organization org-acme on tokens.", "Limit reached in … on tokens."),
            ("No access for acct_AbCdEf or key-ABCD.", "No access for … or …"),
            ("Your organization must be verified.", "Your organization must be verified."),
            ("No model m in account 123 or project acme-7.", "No model m in … or …"),
            ("No model m in organization 'acme'.", "No model m in …."),
            ("projects/acme/models/m was not found.", "…/models/m was not found."),
            ("Ask ops@acme.example, see https://acme.example/m?k=1", "Ask …, see …"),
            ("The account has no model m.", "The account has no model m."),
            ("Invalid 'messages[0].content': is too long...", "Invalid 'messages[0].content': is too …"),
            *[(each, each) for each in (
                "In context=('a', 'b'), 'c_key' is required.", "In context=('properties', 'account'), 'type' missing.",
                "Missing 'project_id'.", "Invalid 'metadata.account': 'x'.", "key_path and org_name are no members.",
            )],
        ],
    )  # fmt: skip
    def test_names_of_our_account_are_removed_from_messages(self, message: str, told: str) -> None:
        body = json.dumps({"error": {"message": message}}).encode()
        assert refusal_of(404, {}, body).detail == told

    def test_a_very_long_word_is_cleaned_fast(self) -> None:
        body = json.dumps({"error": {"message": "a-" * 30_000}}).encode()
        assert len(refusal_of(400, {}, body).detail) == 500
        assert takes_at_most(25, lambda: refusal_of(400, {}, body))

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ("7", "7"),
            # SpaceTradersAPI/api-docs#24, urllib3/urllib3#2861
            ("0.493", "1"),
            (" 1.0 ", "1"),
            ("12s", "12"),
            ("soon", None),
            ("nan", None),
            ("1e9", None),
            ("-0.5", None),
            ("99999999", None),
            ("9" * 5000, None),
            ("-1", None),
            (http_date(NOON.timestamp() - 60), "0"),
            ("Sun, 06 Nov 1994 08:49:37 GMT", "0"),
            ("Sunday, 06-Nov-94 08:49:37 GMT", "0"),
            ("Sun Nov  6 08:49:37 1994", "0"),
            ("Sun, 06 Nov 1994 09:49:37 +0100", "0"),
            ("1994-11-06T08:49:37Z", "0"),
            ("1994-11-06T08:49:37.125+01:00", "0"),
            (http_date(NOON.timestamp() + 90_000), None),
            ("Fri, 99 Nov 2094 08:49:37 GMT", None),
            ("Fri, 05 Nov 99999 08:49:37 GMT", None),
        ],
    )
    def test_a_valid_retry_after_is_forwarded(self, given: str, told: str | None) -> None:
        with time_machine.travel(NOON, tick=False):
            refusal = refusal_of(429, {"Retry-After": given}, b"")
        assert refusal.headers.get("Retry-After") == told

    @pytest.mark.parametrize("status", [401, 408, 429, 500, 502, 503, 504, 529])
    def test_retry_after_is_forwarded_unless_the_caller_is_at_fault(self, status: int) -> None:
        assert refusal_of(status, {"Retry-After": "7"}, b"").headers["Retry-After"] == "7"

    def test_a_retry_after_date_is_forwarded_in_seconds(self) -> None:
        until = NOON + timedelta(minutes=10)
        for date in (http_date(until.timestamp()), until.isoformat()):
            with time_machine.travel(NOON, tick=False):
                refusal = refusal_of(503, {"Retry-After": date}, b"")
            assert refusal.headers["Retry-After"] == "600"


class TestPassing:
    CHUNK: dict[str, Any] = {
        "id": "c",
        "choices": [{"index": 0, "delta": {"content": "Hi", "mood": "good"}, "beam": 1}],
        "trace": "internal",
    }

    def whole(self, chunk: dict[str, Any]) -> dict[str, Any]:
        choices = [
            {"message" if name == "delta" else name: value for name, value in choice.items()}
            | {"finish_reason": "stop"}
            for choice in chunk["choices"]
        ]
        return {**chunk, "choices": choices}

    def test_members_that_nobody_knows_pass_and_count_as_output(self) -> None:
        assert piece(self.CHUNK).forward == event(self.CHUNK).raw
        assert piece(self.CHUNK).size == len("Higoodinternal")
        answer, _, size = answered(json.dumps(self.whole(self.CHUNK)).encode())
        assert (answer, size) == (self.whole(self.CHUNK), len("Higoodinternal"))

    COSTS: ClassVar[list[tuple[dict[str, Any], dict[str, Any]]]] = [
        ({"x_cost": 1, "y": 2}, {"y": 2}),
        ({"of": [{"Price_USD": 1, "left": {"billing": {}, "deep": 2}}]}, {"of": [{"left": {"deep": 2}}]}),
        ({"x_groq": {"id": "r", "usage": {"total_time": 1}}}, {"x_groq": {"id": "r"}}),
    ]  # fmt: skip

    @pytest.mark.parametrize(("given", "left"), COSTS)
    def test_the_cost_of_an_answer_is_taken_out_at_any_depth(
        self, given: dict[str, Any], left: dict[str, Any]
    ) -> None:
        chunk = {"choices": [{"index": 0, "delta": {"content": "The price", **given}}], **given}
        kept = {"choices": [{"index": 0, "delta": {"content": "The price", **left}}], **left}
        assert chunk_of(piece(chunk)) == kept
        answer, _, _ = answered(json.dumps(self.whole(chunk)).encode())
        assert answer == self.whole(kept)

    def test_an_escaped_name_of_a_cost_is_one(self) -> None:
        given = EventParser().feed(
            b'data: {"choices":[{"delta":{"content":"a"}}],"\\u0063ost":1,"us\\u0061ge":null}\n\n'
        )[0]
        assert "cost" not in chunk_of(translator(chat(stream=True)).piece(given))

    def test_arguments_keep_their_names(self) -> None:
        call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": {"price": 9}}}
        got = chunk_of(piece({"choices": [{"delta": {"tool_calls": [call]}}], "cost": 1}))
        (kept,) = got["choices"][0]["delta"]["tool_calls"]
        assert json.loads(kept["function"]["arguments"]) == {"price": 9}
        assert "cost" not in got

    TEXT = "The whole answer. " * 100
    FREE: ClassVar[list[dict[str, Any]]] = [
        {"delta": {"words": TEXT}},
        {"delta": {"nested": {"deep": [{"words": TEXT}]}}},
        {"delta": {TEXT: 1}},
        {"delta": {"thinking_blocks": [{"type": "thinking", "thinking": TEXT}]}},
        {"delta": {"function_call": {"arguments": TEXT}}},
        {"delta": {}, "text": TEXT},
    ]

    @pytest.mark.parametrize("choice", FREE)
    def test_text_counts_wherever_a_provider_puts_it(self, choice: dict[str, Any]) -> None:
        assert piece({"choices": [choice]}).size >= len(self.TEXT) - 100
        assert piece({"choices": [{"delta": {}}], "words": self.TEXT}).size == len(self.TEXT)
        _, _, size = answered(json.dumps(self.whole({"choices": [choice]})).encode())
        assert size >= len(self.TEXT) - 100

    def test_a_text_that_comes_in_every_chunk_alike_counts_once(self) -> None:
        translate = translator(chat(stream=True))
        chunk = {"choices": [{"delta": {"content": "a"}}], "trace": "0123456789"}
        assert [translate.piece(event(chunk)).size for _ in range(3)] == [11, 1, 1]

    def test_a_call_of_a_custom_tool_counts_as_output(self) -> None:
        call = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
        assert piece({"choices": [{"delta": {"tool_calls": [call]}}]}).size == 4


def call_of(name: str = "weather", **members: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": '{"city": "Ulm"}'}
    return {"index": 0, "id": "call_0", "type": "function", "function": function, **members}


class TestSecondTurn:
    """After the call of a tool, as OpenAI's SDK puts an answer together and gives it back."""

    SIGNED: dict[str, Any] = {"google": {"thought_signature": "CtsBAR_MhbY="}}
    # The deltas of a stream; the shapes are those that the servers send.
    DELTAS: dict[str, list[dict[str, Any]]] = {
        "deepseek": [
            {"role": "assistant", "content": None, "reasoning_content": ""},
            {"reasoning_content": "Hm."},
            {"tool_calls": [call_of()]},
        ],
        "qwen": [
            {"role": "assistant", "content": None, "reasoning_content": "Hm."},
            {"content": "", "reasoning_content": None, "tool_calls": [call_of()]},
        ],
        "gemini": [{"role": "assistant", "tool_calls": [call_of(extra_content=SIGNED)]}],
        "vllm": [
            {"role": "assistant", "content": "", "reasoning": "Hm."},
            {"tool_calls": [call_of()]},
        ],
    }
    BACK: dict[str, dict[str, Any]] = {
        "deepseek": {"reasoning_content": "Hm."},
        "qwen": {"reasoning_content": "Hm."},
        "gemini": {},
        "vllm": {"reasoning": "Hm."},
    }

    def streamed(self, server: str) -> dict[str, Any]:
        state = ChatCompletionStreamState()
        translate = translator(chat(stream=True))
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        for delta in self.DELTAS[server]:
            chunk = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            got = chunk_of(translate.piece(event(chunk)))
            state.handle_chunk(ChatCompletionChunk.model_validate(got))
        return state.get_final_completion().choices[0].message.model_dump()

    def whole(self, server: str) -> dict[str, Any]:
        message: dict[str, Any] = {"content": None}
        for delta in self.DELTAS[server]:
            message |= {name: value for name, value in delta.items() if value}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
        answer, _, _ = answered(json.dumps({**head, "choices": [choice]}).encode())
        return ChatCompletion.model_validate(answer).choices[0].message.model_dump()

    @pytest.mark.parametrize("server", DELTAS)
    @pytest.mark.parametrize("how", ["streamed", "whole"])
    def test_the_thoughts_of_a_server_go_back_to_it(self, server: str, how: str) -> None:
        said = self.streamed(server) if how == "streamed" else self.whole(server)
        result = {"role": "tool", "tool_call_id": "call_0", "content": "rain"}
        asked = parse({"messages": [said, result]}, stream=False)
        target().check(asked)
        outgoing = ChatCompletions().outgoing(asked, target=target(), output_limit=40)
        answer, given = json.loads(outgoing.body)["messages"]
        (call,) = answer["tool_calls"]
        assert call.get("extra_content") == (self.SIGNED if server == "gemini" else None)
        assert json.loads(call["function"]["arguments"]) == {"city": "Ulm"}
        thoughts = {name: value for name, value in answer.items() if name.startswith("reasoning")}
        assert thoughts == self.BACK[server]
        assert given == result
