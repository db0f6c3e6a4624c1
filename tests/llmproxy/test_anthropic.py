"""Anthropic's dialect, both ways: what is asked, what each event means, and whole calls through the relay."""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from accounts.models import Session, User
from accounts.sessions.sign_in import TokenPair
from config.platform.problems.problem import InvalidRequest, Problem
from licensing.callers import Caller, load_caller
from llmproxy.calls import relay, watch
from llmproxy.calls.call import Call, End
from llmproxy.calls.meter import State
from llmproxy.dialects.anthropic import ChatCompletions
from llmproxy.dialects.anthropic.blocks import SIGNED
from llmproxy.dialects.anthropic.events import EventTranslator
from llmproxy.dialects.anthropic.overhead import TOOLS_PROMPT
from llmproxy.dialects.anthropic.thinking import takes_effort
from llmproxy.dialects.anthropic.turns import OPENING, call_id
from llmproxy.dialects.protocol import (
    KEEP_ALIVE,
    Piece,
    PromptUsage,
    ProviderError,
    ProviderRejected,
    ProviderTimeout,
    ProviderUnavailable,
    TokenUsage,
)
from llmproxy.dialects.sse import Event
from llmproxy.models import LanguageModel
from llmproxy.prompts.estimates import text_tokens
from llmproxy.prompts.images import ANTHROPICS_LARGEST
from llmproxy.requests.chat import Chat, parse
from tests.llmproxy.calling import admit, asking
from tests.llmproxy.targets import refusal_of, target
from tests.pairing import each_once
from tests.standins.anthropic_server import (
    MODEL,
    USAGE,
    MessagesServer,
    as_stream,
    events_of,
    fault_of,
    message,
    messages_server,
    text,
    thought,
    tool_use,
)
from usage.models import MonthlyUsage, UsageRecord

HI = {"role": "user", "content": "hi"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Ulm"}'},
}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}


def chat(*messages: dict[str, Any], **members: Any) -> Chat:
    return parse({"messages": list(messages) or [HI], **members}, stream=None)


def body(
    *messages: dict[str, Any], model: str = MODEL, limit: int = 4096, **members: Any
) -> dict[str, Any]:
    outgoing = ChatCompletions().outgoing(
        chat(*messages, **members), target=target("anthropic", model=model), output_limit=limit
    )
    asked: dict[str, Any] = json.loads(outgoing.body)
    assert fault_of(asked) is None
    return asked


def refused(*messages: dict[str, Any], **members: Any) -> str:
    """The pointer of what is refused before anything is asked or reserved."""
    with pytest.raises(InvalidRequest) as caught:
        ChatCompletions().check(chat(*messages, **members))
    (fault,) = caught.value.errors
    assert fault.code == "unsupported"
    return fault.pointer


def translator(*, include_usage: bool = False) -> EventTranslator:
    return EventTranslator(include_usage=include_usage, key=target("anthropic").key)


def answered(given: bytes) -> tuple[dict[str, Any], TokenUsage | None, int]:
    return ChatCompletions().answer(given, target=target("anthropic"))


def event(data: Any) -> Event:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return Event(b"data: " + raw + b"\n\n", raw, None)


def pieces(answer: dict[str, Any], *, include_usage: bool = False) -> list[Piece]:
    translate = translator(include_usage=include_usage)
    return [translate.piece(event(each)) for each in events_of(answer)]


def chunks_in(data: bytes) -> list[dict[str, Any]]:
    events = data.replace(KEEP_ALIVE, b"").split(b"\n\n")
    lines = [line for line in events if line.startswith(b"data: {")]
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def chunks_of(given: list[Piece]) -> list[dict[str, Any]]:
    return chunks_in(b"".join(piece.forward for piece in given))


def put_together(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a client makes of chunks."""
    said: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            said["content"] += delta.get("content") or ""
            said["reasoning_content"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(said["tool_calls"]):
                    said["tool_calls"].append({**call, "function": {**call["function"]}})
                else:
                    so_far = said["tool_calls"][call["index"]]["function"]
                    so_far["arguments"] += call["function"]["arguments"]
    return said


class TestRequests:
    def test_the_request_has_the_credential_in_its_header_only(self, settings) -> None:
        asked = chat(stream=True, user="someone", metadata={"a": "b"}, model="public", seed=7)
        outgoing = ChatCompletions().outgoing(
            asked, target=target("anthropic", model=MODEL), output_limit=40
        )
        assert json.loads(outgoing.body) == {
            "model": MODEL,
            "max_tokens": 40,
            "messages": [{"role": "user", "content": [text("hi")]}],
            "stream": True,
        }
        assert outgoing.url == f"{settings.LLM_BASE_URL}/v1/messages"
        assert outgoing.headers["x-api-key"] == settings.LLM_API_KEY()
        assert outgoing.headers["anthropic-version"] == "2023-06-01"
        assert "Authorization" not in outgoing.headers
        assert settings.LLM_API_KEY() not in outgoing.url + outgoing.body.decode()

    def test_system_messages_become_one_prompt_before_all_turns(self) -> None:
        asked = body(
            {"role": "system", "content": "Be kind."},
            HI,
            {"role": "developer", "content": [text("Be brief."), text(" ")]},
        )
        assert asked["system"] == "Be kind.\n\nBe brief."
        assert asked["messages"] == [{"role": "user", "content": [text("hi")]}]

    def test_consecutive_messages_of_one_role_become_one_turn(self) -> None:
        asked = body(
            HI,
            {"role": "user", "content": "you", "name": "ada"},
            {"role": "assistant", "content": "yes"},
            HI,
        )
        assert [turn["role"] for turn in asked["messages"]] == ["user", "assistant", "user"]
        assert asked["messages"][0]["content"] == [text("hi"), text("you")]

    @pytest.mark.parametrize(
        "order",
        # QwenLM/qwen-code#8161; said before all results, twice, and by a picture (Zoo-Code-Org/Zoo-Code#1705).
        [("c1", "said", "c2"), ("said", "c1", "c2"), ("c2", "said", "c1", "said"), ("c1", "shown", "c2"),
         ("said", "developer", "c1", "c2", "shown")],
    )  # fmt: skip
    def test_results_come_before_what_a_user_says_among_them(self, order: tuple[str, ...]) -> None:
        png = "data:image/png;base64,iVBORw0KGgo="
        image = {"type": "image_url", "image_url": {"url": png}}
        kinds: dict[str, dict[str, Any]] = {
            "said": {"role": "user", "content": "Wait."},
            "shown": {"role": "user", "content": [image]},
            "developer": {"role": "developer", "content": "Be brief."},
            **{
                each: {"role": "tool", "tool_call_id": each, "content": "4"}
                for each in ("c1", "c2")
            },
        }
        function = {"name": "weather", "arguments": "{}"}
        calls = [{"id": each, "type": "function", "function": function} for each in ("c1", "c2")]
        called = {"role": "assistant", "content": None, "tool_calls": calls}
        sent = body(HI, called, *map(kinds.get, order), tools=[WEATHER])["messages"]
        assert [turn["role"] for turn in sent] == ["user", "assistant", "user"]
        found = [block.get("tool_use_id") or block["type"] for block in sent[2]["content"]]
        results = [each for each in order if each in ("c1", "c2")]
        told = {"said": "text", "shown": "image"}
        assert found == [*results, *(told[each] for each in order if each in told)]

    def test_tool_results_are_together_at_the_head_of_a_users_turn(self) -> None:
        second = {**CALL, "id": "functions.weather:1"}
        asked = body(
            HI,
            {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL, second]},
            RESULT,
            {"role": "tool", "tool_call_id": "functions.weather:1", "content": ""},
            {"role": "user", "content": "And?"},
            tools=[WEATHER],
        )
        assert asked["messages"][1]["content"] == [
            text("Let me see."),
            tool_use("weather", {"city": "Ulm"}, "call_1"),
            tool_use("weather", {"city": "Ulm"}, "functions_weather_1_8883eeee"),
        ]
        assert asked["messages"][2]["content"] == [
            {"type": "tool_result", "tool_use_id": "call_1", "content": [text("rain")]},
            {"type": "tool_result", "tool_use_id": "functions_weather_1_8883eeee"},
            text("And?"),
        ]

    @pytest.mark.parametrize(
        "ids",
        [
            ("a.1", "a:1", "a_1"),
            ("", "_", "\ud83d", "?"),
            ("x" * 64, "x" * 65, "x" * 256),
            ("é", "è"),
        ],
    )
    def test_different_ids_of_calls_stay_different(self, ids: tuple[str, ...]) -> None:
        called, *results = body(
            HI,
            {**CALLED, "tool_calls": [{**CALL, "id": each} for each in ids]},
            *({**RESULT, "tool_call_id": each} for each in ids),
        )["messages"][1:]
        made = [block["id"] for block in called["content"]]
        assert [block["tool_use_id"] for block in results[0]["content"]] == made
        assert len(set(made)) == len(ids)
        kept = [each for each in ids if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", each)]
        assert set(kept) <= set(made)

    @pytest.mark.parametrize(
        ("written", "read"),
        [("", {}), ("[1]", {"arguments": "[1]"}), ('{"ci', {"arguments": '{"ci'}),
         ('{"x": NaN}', {"arguments": '{"x": NaN}'}), ("[" * 99_999, {"arguments": "[" * 99_999})],
    )  # fmt: skip
    def test_arguments_that_are_no_object_become_an_object_with_their_text(
        self, written: str, read: dict[str, Any]
    ) -> None:
        call = {**CALL, "function": {"name": "weather", "arguments": written}}
        asked = body(HI, {**CALLED, "tool_calls": [call]}, RESULT)
        assert asked["messages"][1]["content"][0]["input"] == read

    def test_turns_that_called_tools_are_sent_with_tools_that_may_not_be_called(self) -> None:
        asked = body(HI, CALLED, RESULT)
        assert asked["tools"] == [{"name": "weather", "input_schema": {"type": "object"}}]
        assert asked["tool_choice"] == {"type": "none"}

    def test_a_conversation_that_an_assistant_opens_gets_a_first_turn(self) -> None:
        asked = body({"role": "assistant", "content": "Welcome!"}, HI)
        assert asked["messages"][0] == {"role": "user", "content": [text(OPENING)]}

    def test_an_answer_to_continue_does_not_end_in_white_space(self) -> None:
        asked = body(HI, {"role": "assistant", "content": None, "refusal": "I shall \n"})
        assert asked["messages"][-1] == {"role": "assistant", "content": [text("I shall")]}

    @pytest.mark.parametrize("content", ["", " \n", [text(""), text(" ")]])
    def test_messages_without_content_to_answer_are_refused(self, content: Any) -> None:
        system, blank = {"role": "system", "content": "x"}, {**HI, "content": content}
        assert refused(system) == refused(system, {"role": "assistant", "content": content})
        assert refused(system) == "/messages"
        assert refused(system, blank) == "/messages/1/content"

    @pytest.mark.parametrize("content", ["", " \n", [text(""), text(" ")]])
    def test_a_blank_last_message_does_not_continue_the_answer_before_it(
        self, content: Any
    ) -> None:
        said, blank = {"role": "assistant", "content": "Yes."}, {**HI, "content": content}
        assert refused(HI, said, blank) == "/messages/2/content"
        assert refused(HI, said, blank, {**blank, "role": "system"}) == "/messages/2/content"

    @pytest.mark.parametrize("content", ["", " \n", [text(""), text(" ")]])
    def test_blank_messages_that_need_no_answer_are_left_out(self, content: Any) -> None:
        said, blank = {"role": "assistant", "content": "Yes."}, {**HI, "content": content}
        assert body(HI, said, blank, HI)["messages"] == body(HI, said, HI)["messages"]
        assert body(HI, blank)["messages"] == body(HI)["messages"]
        assert body(blank, said, HI)["messages"] == body(said, HI)["messages"]
        assert body(HI, said, {**blank, "role": "system"})["messages"][-1]["role"] == "assistant"

    def test_a_last_system_message_does_not_continue_the_answer_before_it(self) -> None:
        said, system = {"role": "assistant", "content": "Yes."}, {**HI, "role": "developer"}
        assert refused(HI, said, system) == "/messages/2"
        assert body(HI, said, system, HI)["messages"][-1]["role"] == "user"
        assert body(HI, system)["messages"] == [{"role": "user", "content": [text("hi")]}]

    def test_images_are_sent_as_data_or_by_url(self) -> None:
        parts = [{"type": "image_url", "image_url": {"url": url, "detail": "low"}}
                 for url in ("data:image/jpg;base64,AAAA", "https://a.test/b.png")]  # fmt: skip
        asked = body({"role": "user", "content": [text("What?"), *parts]})
        assert [block.get("source") for block in asked["messages"][0]["content"]] == [
            None,
            {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"},
            {"type": "url", "url": "https://a.test/b.png"},
        ]

    @pytest.mark.parametrize(
        "url", ["data:image/svg+xml;base64,AAAA", "data:image/png,AAAA", "data:image/png;base64,"]
    )
    def test_an_unsupported_image_is_refused(self, url: str) -> None:
        asked = {**HI, "content": [{"type": "image_url", "image_url": {"url": url}}]}
        assert refused(asked) == "/messages/0/content/0/image_url/url"

    @pytest.mark.parametrize("role", ["system", "assistant"])
    def test_only_messages_of_users_and_tools_hold_images(self, role: str) -> None:
        image = {"type": "image_url", "image_url": {"url": "https://a.test/b.png"}}
        asked = {"role": role, "content": [image]}
        assert refused(HI, asked) == "/messages/1/content/0/image_url"
        assert body(HI, CALLED, {**RESULT, "content": [image]})

    def test_tools_are_translated(self) -> None:
        bare = {"type": "function", "function": {"name": "now", "strict": True}}
        asked = body(tools=[WEATHER, bare])
        assert asked["tools"] == [
            {
                "name": "weather",
                "description": "The weather of a city.",
                "input_schema": WEATHER["function"]["parameters"],
            },
            {"name": "now", "input_schema": {"type": "object"}, "strict": True},
        ]
        assert asked["tool_choice"] == {"type": "auto"}

    @pytest.mark.parametrize(
        ("members", "choice"),
        [
            ({"tool_choice": "auto"}, {"type": "auto"}),
            ({"tool_choice": "required"}, {"type": "any"}),
            ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
            ({"tool_choice": {"type": "function", "function": {"name": "weather"}}},
             {"type": "tool", "name": "weather"}),
            ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
            ({"parallel_tool_calls": True}, {"type": "auto"}),
        ],
    )  # fmt: skip
    def test_the_choice_among_tools_is_translated(
        self, members: dict[str, Any], choice: dict[str, Any]
    ) -> None:
        assert body(tools=[WEATHER], **members)["tool_choice"] == choice

    def test_invalid_tools_are_refused(self) -> None:
        listing = {"type": "function", "function": {"name": "x", "parameters": {"type": "array"}}}
        assert refused(tools=[WEATHER, listing]) == "/tools/1/function/parameters/type"
        assert refused(tool_choice="required") == "/tool_choice"
        assert "tools" not in body(tools=[], tool_choice="none")

    @pytest.mark.parametrize(
        ("members", "asked"),
        [
            ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
            ({"temperature": 1.7}, {}),
            ({"temperature": 1, "top_p": 1, "seed": 3}, {}),
            ({"logit_bias": {"1": 0, "2": -0.0}}, {}),
            ({"temperature": 0}, {"temperature": 0}),
            ({"stop": "END"}, {"stop_sequences": ["END"]}),
            ({"stop": ["a", "b"]}, {"stop_sequences": ["a", "b"]}),
            ({"stop": []}, {}),
            ({"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "logprobs": False,
              "top_logprobs": 0, "response_format": {"type": "text"}}, {}),
        ],
    )  # fmt: skip
    def test_members_are_translated_to_anthropics_members(
        self, members: dict[str, Any], asked: dict[str, Any]
    ) -> None:
        made = body(**members)
        assert {
            name: made[name] for name in made.keys() - {"model", "max_tokens", "messages"}
        } == asked

    @pytest.mark.parametrize(
        "member",
        [{"presence_penalty": 0.1}, {"frequency_penalty": -1}, {"logit_bias": {"4": 0, "5": 1}},
         {"logprobs": True}, {"top_logprobs": 2}, {"stop": ["x", "\n"]}, {"stop": ""}],
    )  # fmt: skip
    def test_unsupported_members_that_would_change_the_answer_are_refused(
        self, member: dict[str, Any]
    ) -> None:
        assert refused(**member) == f"/{next(iter(member))}"

    def test_a_strict_schema_is_passed_on(self) -> None:
        form = {"name": "n", "schema": SCHEMA, "strict": True}
        asked = body(response_format={"type": "json_schema", "json_schema": form})
        assert asked["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
        assert "system" not in asked

    def test_other_json_formats_are_described_in_the_system_prompt(self) -> None:
        asked = body(
            {"role": "system", "content": "Be kind."}, HI, response_format={"type": "json_object"}
        )
        assert asked["system"].startswith("Be kind.\n\n")
        assert "JSON object" in asked["system"]
        form = {"name": "n", "schema": SCHEMA, "description": "A number."}
        asked = body(response_format={"type": "json_schema", "json_schema": form})
        assert "output_config" not in asked
        assert json.dumps(SCHEMA) in asked["system"]
        assert "A number." in asked["system"]


class TestMembersOfOpenAI:
    def test_hints_are_ignored(self) -> None:
        hints = {
            "verbosity": "low",
            "prediction": {"type": "content", "content": "x"},
            "service_tier": "default",
            "prompt_cache_key": "k",
            "prompt_cache_retention": "24h",
            "prompt_cache_options": {"mode": "implicit"},
        }
        assert body(**hints) == body()

    def test_a_caller_is_named_by_the_members_for_it(self) -> None:
        assert body(safety_identifier="s-7")["metadata"] == {"user_id": "s-7"}

    @pytest.mark.parametrize(
        "mark",
        [
            {"cache_control": {"type": "ephemeral"}},
            {"cache_control": {"type": "ephemeral", "ttl": "5m"}},
            {"prompt_cache_breakpoint": {"mode": "explicit"}},
        ],
    )
    def test_the_end_of_a_cached_beginning_is_passed_on(self, mark: dict[str, Any]) -> None:
        marked = {"cache_control": {"type": "ephemeral"}}
        part = {"type": "text", "text": "Long.", **mark}
        asked = body(
            {"role": "system", "content": [part, {"type": "text", "text": "Short."}]},
            {"role": "user", "content": [part, {"type": "text", "text": " ", **mark}]},
        )
        assert asked["system"] == [
            {"type": "text", "text": "Long.", **marked},
            {"type": "text", "text": "Short."},
        ]
        assert asked["messages"][0]["content"] == [{"type": "text", "text": "Long.", **marked}]

    def test_marks_of_messages_and_tools_are_kept_too(self) -> None:
        mark = {"cache_control": {"type": "ephemeral"}}
        asked = body(
            {"role": "system", "content": "Be kind.", **mark},
            {**HI, **mark},
            {**CALLED, **mark},
            {**RESULT, **mark},
            tools=[{**WEATHER, **mark}],
        )
        assert asked["system"] == [{"type": "text", "text": "Be kind.", **mark}]
        ends = [turn["content"][-1]["cache_control"] for turn in asked["messages"]]
        assert [*ends, asked["tools"][0]["cache_control"]] == [mark["cache_control"]] * 4

    def test_files_become_documents(self) -> None:
        pdf = {"file_data": "data:application/pdf;base64,JVBERi0xLjQK", "filename": "a.pdf"}
        words = {"file_data": "data:text/plain;base64,R3LDvMOfZQ=="}
        parts = [{"type": "file", "file": each} for each in (pdf, words)]
        (turn,) = body({"role": "user", "content": parts})["messages"]
        assert turn["content"] == [
            {
                "type": "document",
                "title": "a.pdf",
                "source": {
                    "type": "base64",
                    "media_type": "application/pdf",
                    "data": "JVBERi0xLjQK",
                },
            },
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"},
            },
        ]

    @pytest.mark.parametrize(
        ("part", "pointer"),
        [
            ({"type": "input_audio", "input_audio": {"data": "UklGRiQAAABXQVZF", "format": "wav"}}, "/input_audio"),
            ({"type": "file", "file": {"file_data": "data:application/zip;base64,UEsDBA=="}}, "/file/file_data"),
            ({"type": "file", "file": {"file_data": "data:text/plain;base64,/w=="}}, "/file/file_data"),
        ],
    )  # fmt: skip
    def test_parts_without_a_counterpart_are_refused(
        self, part: dict[str, Any], pointer: str
    ) -> None:
        at = refused({"role": "user", "content": [{"type": "text", "text": "?"}, part]})
        assert at == f"/messages/0/content/1{pointer}"

    def test_tools_without_a_counterpart_are_refused(self) -> None:
        custom = {"type": "custom", "custom": {"name": "shell"}}
        dotted = {"type": "function", "function": {"name": "files.read"}}
        called = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
        turn = {"role": "assistant", "content": None, "tool_calls": [called]}
        assert refused(tools=[WEATHER, custom]) == "/tools/1/type"
        assert refused(tools=[dotted]) == "/tools/0/function/name"
        assert refused(HI, turn) == "/messages/1/tool_calls/0/type"

    @pytest.mark.parametrize(("mode", "choice"), [("auto", "auto"), ("required", "any")])
    def test_only_the_allowed_tools_are_offered(self, mode: str, choice: str) -> None:
        other = {"type": "function", "function": {"name": "other"}}
        allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "weather"}}]}
        asked = body(
            tools=[other, WEATHER], tool_choice={"type": "allowed_tools", "allowed_tools": allowed}
        )
        assert [tool["name"] for tool in asked["tools"]] == ["weather"]
        assert asked["tool_choice"] == {"type": choice}

    def test_members_of_no_list_reach_a_provider_that_takes_all(self) -> None:
        asked = body(top_k=5, diagnostics={"on": True})
        assert (asked["top_k"], asked["diagnostics"]) == (5, {"on": True})


class TestThinking:
    @pytest.mark.parametrize(
        ("effort", "limit", "budget"),
        [("low", 4096, 1024), ("medium", 4096, 2048), ("high", 10_000, 8000), ("xhigh", 2048, 1843),
         ("high", 100_000, 32_000), ("high", 2047, None), ("minimal", 9999, None), ("none", 9999, None)],
    )  # fmt: skip
    def test_older_models_get_a_budget_within_the_output_limit(
        self, effort: str, limit: int, budget: int | None
    ) -> None:
        asked = body(limit=limit, reasoning_effort=effort, temperature=0.5, top_p=0.5)
        thinks = {"type": "enabled", "budget_tokens": budget} if budget else None
        assert asked.get("thinking") == thinks
        assert ("temperature" in asked, "top_p" in asked) == (not thinks, not thinks)

    @pytest.mark.parametrize(
        ("effort", "asked_for"),
        [("none", None), ("minimal", "low"), ("low", "low"), ("high", "high"), ("xhigh", "xhigh")],
    )
    def test_newer_models_get_the_effort(self, effort: str, asked_for: str | None) -> None:
        asked = body(model="claude-opus-4-7", limit=16, reasoning_effort=effort)
        if asked_for is None:
            assert asked["thinking"] == {"type": "disabled"}
        else:
            assert asked["thinking"] == {"type": "adaptive", "display": "summarized"}
            assert asked["output_config"] == {"effort": asked_for}

    @pytest.mark.parametrize("model", [MODEL, "claude-opus-5"])
    def test_thoughts_given_back_let_the_model_think_on_after_a_tool(self, model: str) -> None:
        """As it answered, whole or streamed, and as programs put streams together."""
        hidden = {"type": "redacted_thinking", "data": "EmwKAhgB"}
        calls = [tool_use("weather", {"city": city}, f"call_{city}") for city in ("Ulm", "Bonn")]
        # Thoughts between calls keep their place.
        blocks = [
            *(thought("Hm."), hidden, text("Let me see.")),
            *(calls[0], thought("And"), hidden, thought("then?"), calls[1], thought("So.")),
        ]
        given = message(*blocks, stop_reason="tool_use")
        whole, _, _ = answered(json.dumps(given).encode())
        state = ChatCompletionStreamState()
        for chunk in chunks_of(pieces(given)):
            state.handle_chunk(ChatCompletionChunk.model_validate({"model": "m", **chunk}))
        streamed = state.get_final_completion().choices[0].message.model_dump()
        for answer in (whole["choices"][0]["message"], streamed):
            results = [{**RESULT, "tool_call_id": each["id"]} for each in calls]
            asked = body(
                HI, answer, *results, tools=[WEATHER], reasoning_effort="high", model=model
            )
            assert asked["messages"][1] == {"role": "assistant", "content": blocks}
            assert asked["thinking"]["type"] == ("enabled" if model == MODEL else "adaptive")

    def test_thinking_blocks_of_litellm_go_back_as_they_are(self) -> None:
        given = [thought("Hm."), {"type": "redacted_thinking", "data": "EmwKAhgB"}]
        unsigned = [{"type": "thinking", "thinking": "?"}, {"type": "thinking", "signature": 7}, 7]
        unsigned += [{**thought("Hm."), "signature": ""}, {"type": "redacted_thinking", "data": ""}]
        for members in (
            {"thinking_blocks": [*given, *unsigned]},
            {"provider_specific_fields": {"thinking_blocks": given}},
        ):
            asked = body(HI, {**CALLED, **members}, RESULT)
            found = asked["messages"][1]["content"]
            assert (found[:-1], found[-1]["type"]) == (given, "tool_use")
        # Of a thought in both shapes the one counts that says its place.
        signed = {"type": "reasoning.text", "text": "Ah", "signature": "x", "format": SIGNED}
        both = {"reasoning_details": [signed], "thinking_blocks": given}
        found = body(HI, {**CALLED, **both}, RESULT)["messages"][1]["content"]
        assert [each["type"] for each in found] == ["thinking", "tool_use"]

    @pytest.mark.parametrize(
        "details",
        [
            None,
            [],
            [{"type": "reasoning.text", "text": "Hm.", "index": 0}],
            [{"type": "reasoning.text", "text": "Hm.", "signature": "x", "format": "google-gemini-v1"}],
            [{"type": "reasoning.text", "text": 7, "signature": "x", "format": "anthropic-claude-v1"}],
            [{"type": "reasoning.text", "text": "Hm.", "signature": "", "format": "anthropic-claude-v1"}],
            [{"type": "reasoning.encrypted", "data": "", "format": "anthropic-claude-v1"}],
            [7, "x", None, {}],
        ],
    )  # fmt: skip
    def test_thoughts_without_its_signature_are_left_out(self, details: Any) -> None:
        answer = {**CALLED, "reasoning_content": "Hm.", "reasoning_details": details}
        asked = body(HI, answer, RESULT, reasoning_effort="high")
        assert [block["type"] for block in asked["messages"][1]["content"]] == ["tool_use"]
        assert "thinking" not in asked

    def test_effort_and_schema_are_both_sent(self) -> None:
        form = {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
        }
        asked = body(model="claude-sonnet-5", reasoning_effort="low", response_format=form)
        assert asked["output_config"].keys() == {"effort", "format"}

    def test_a_forced_tool_call_excludes_thinking(self) -> None:
        for model in (MODEL, "claude-opus-5"):
            asked = body(
                model=model, tools=[WEATHER], tool_choice="required", reasoning_effort="high"
            )
            assert "thinking" not in asked

    def test_an_unfinished_turn_excludes_a_thinking_budget(self) -> None:
        assert "thinking" not in body(HI, CALLED, RESULT, reasoning_effort="high")
        assert "thinking" not in body(
            HI, {"role": "assistant", "content": "So"}, reasoning_effort="high"
        )
        assert "thinking" in body(
            HI, CALLED, RESULT, reasoning_effort="high", model="claude-opus-5"
        )

    @pytest.mark.parametrize(
        ("model", "by_effort"),
        [("claude-3-7-sonnet-20250219", False), ("claude-sonnet-4-20250514", False), ("claude-opus-4-1", False),
         ("claude-opus-4-5-20251101", False), ("anthropic.claude-haiku-4-5-20251001-v1:0", False),
         ("claude-opus-4-0", False), ("claude-sonnet-4-6", True), ("claude-opus-4-7", True),
         ("claude-opus-4-10", True), ("claude-sonnet-5", True), ("claude-haiku-5-5", True), ("other", False)],
    )  # fmt: skip
    def test_models_with_an_effort_are_told_from_models_with_a_budget(
        self, model: str, by_effort: bool
    ) -> None:
        assert takes_effort(model) == by_effort


class TestOverhead:
    def test_the_overhead_covers_anthropics_own_system_prompt(self) -> None:
        overhead = ChatCompletions().prompt_overhead
        assert overhead(chat()) == 0
        assert overhead(chat(tools=[WEATHER])) == overhead(chat(HI, CALLED, RESULT)) == TOOLS_PROMPT

    @pytest.mark.parametrize("given", ["call:1", " the" * 16])
    def test_the_overhead_covers_translated_ids_of_calls(self, given: str) -> None:
        called = {**CALLED, "tool_calls": [{**CALL, "id": given}, CALL]}
        asked = chat(HI, called, {**RESULT, "tool_call_id": given}, RESULT)
        more = text_tokens(call_id(given)) - text_tokens(given)
        assert more > 0
        assert ChatCompletions().prompt_overhead(asked) == TOOLS_PROMPT + 2 * more


class TestAnswers:
    def test_a_message_becomes_a_completion(self) -> None:
        answer, known, size = answered(json.dumps(message(text("Hé"), text("!"))).encode())
        assert answer.pop("created") > 1_700_000_000
        assert answer == {
            "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
            "object": "chat.completion",
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Hé!", "refusal": None},
                    "finish_reason": "stop",
                    "logprobs": None,
                }
            ],
            "usage": {
                "prompt_tokens": 30,
                "completion_tokens": 42,
                "total_tokens": 72,
                "prompt_tokens_details": {"cached_tokens": 15, "cache_write_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 0},
            },
        }
        assert (known, size) == (TokenUsage(input=30, output=42, cached_input=15, cache_write=4), 4)

    def test_thinking_and_tool_calls_become_their_members(self) -> None:
        hidden = {"type": "redacted_thinking", "data": "EmwKAhgB"}
        blocks = [
            thought("Hm."),
            hidden,
            {"type": "of tomorrow"},
            tool_use("weather", {"city": "Ulm"}),
        ]
        answer, _, size = answered(json.dumps(message(*blocks, stop_reason="tool_use")).encode())
        (choice,) = answer["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] is None
        assert choice["message"]["reasoning_content"] == "Hm."
        (call,) = choice["message"]["tool_calls"]
        assert call["function"] == {"name": "weather", "arguments": '{"city": "Ulm"}'}
        assert size == len("Hm.") + len("EmwKAhgB") + len('weather{"city": "Ulm"}')

    def test_arguments_are_json_with_integers_of_any_size(self) -> None:
        block = tool_use("f", {"a": float("nan"), "b": [float("inf"), 10**30]})
        answer, _, _ = answered(json.dumps(message(block)).encode())
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        assert call["function"]["arguments"] == '{"a": null, "b": [null, 1%s]}' % ("0" * 30)

    @pytest.mark.parametrize(
        "block",
        [{**tool_use("now", {}), "input": None}, {**tool_use("now", {}), "input": {}},
         {"type": "tool_use", "id": "toolu_1", "name": "now"}, {"type": "text", "text": None},
         {"type": "thinking", "thinking": None}],
    )  # fmt: skip
    def test_missing_content_of_a_block_is_empty_whole_or_streamed(
        self, block: dict[str, Any]
    ) -> None:
        answer, _, size = answered(json.dumps(message(text("Hi"), block)).encode())
        begun, *_, told, stop = events_of(message())
        opened, closed = (
            {"type": f"content_block_{what}", "index": 0} for what in ("start", "stop")
        )
        blocks = [{**opened, "content_block": each} for each in (text("Hi"), block)]
        translate = translator()
        streamed = [translate.piece(event(each)) for each in (begun, *blocks, closed, told, stop)]
        said, built = answer["choices"][0]["message"], put_together(chunks_of(streamed))
        assert (said["content"], built["content"]) == ("Hi", "Hi")
        assert [call["function"] for call in said.get("tool_calls", [])] == [
            call["function"] for call in built["tool_calls"]
        ]
        assert all(call["function"]["arguments"] == "{}" for call in built["tool_calls"])
        assert sum(piece.size for piece in streamed) == size

    @pytest.mark.parametrize(
        ("reason", "told"),
        [("end_turn", "stop"), ("stop_sequence", "stop"), ("pause_turn", "stop"), ("max_tokens", "length"),
         ("model_context_window_exceeded", "length"), ("tool_use", "tool_calls"),
         ("refusal", "content_filter"), ("of tomorrow", "stop"), (None, "stop")],
    )  # fmt: skip
    def test_stop_reasons_become_finish_reasons(self, reason: str | None, told: str) -> None:
        answer, _, _ = answered(json.dumps(message(stop_reason=reason)).encode())
        assert answer["choices"][0]["finish_reason"] == told

    @pytest.mark.parametrize(
        "usage", [None, {}, [], {"input_tokens": 1}, {"input_tokens": -1, "output_tokens": 1},
                  {"input_tokens": True, "output_tokens": 1}, {"input_tokens": 1, "output_tokens": "1"}],
    )  # fmt: skip
    def test_incomplete_usage_is_no_report(self, usage: Any) -> None:
        answer, known, _ = answered(json.dumps(message(text("x"), usage=usage)).encode())
        assert known is None
        assert "usage" not in answer

    def test_an_explicit_zero_is_a_report(self) -> None:
        zero = {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": None}
        assert answered(json.dumps(message(usage=zero)).encode())[1] == TokenUsage(0, 0)

    @pytest.mark.parametrize(
        "answer",
        [b"", b"<html>", b"{}", b"[]", b"[" * 99_999, b'{"content": [7]}', b'{"content": [{"type": "text"}]}',
         b'{"content": [{"type": "text", "text": 7}], "id": "a", "model": "b"}',
         b'{"content": [{"type": "tool_use", "id": 1, "name": 2, "input": {}}], "id": "a", "model": "b"}'],
    )  # fmt: skip
    def test_an_invalid_message_is_a_failure(self, answer: bytes) -> None:
        with pytest.raises(ProviderError):
            answered(answer)


class TestEvents:
    def test_text_becomes_chunks_of_one_completion_role_first(self) -> None:
        given = pieces(message(text("Hello, wörld")))
        chunks = chunks_of(given)
        assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
        assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert put_together(chunks)["content"] == "Hello, wörld"
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 4 + ["stop"]
        assert [piece.size for piece in given if piece.size] == [5, 6, 2]
        assert given[-1] == Piece(ended=True)
        assert all("usage" not in chunk for chunk in chunks)

    def test_usage_is_a_separate_chunk_if_requested(self) -> None:
        translate = translator(include_usage=True)
        given = [translate.piece(event(each)) for each in events_of(message(text("x")))]
        assert all(chunk["usage"] is None for chunk in chunks_of(given))
        (last,) = chunks_in(translate.ending(TokenUsage(30, 42, 15)))
        assert (last["choices"], last["model"]) == ([], chunks_of(given)[0]["model"])
        assert last["usage"]["prompt_tokens"] == 30
        assert last["usage"]["completion_tokens"] == 42

    def test_tool_calls_are_numbered_and_always_have_arguments(self) -> None:
        answer = message(
            text("Let me see."),
            tool_use("weather", {"city": "Köln"}, "toolu_1"),
            tool_use("now", {}, "toolu_2"),
            stop_reason="tool_use",
        )
        given = pieces(answer)
        calls = put_together(chunks_of(given))["tool_calls"]
        assert [(call["index"], call["id"], call["type"]) for call in calls] == [
            (0, "toolu_1", "function"),
            (1, "toolu_2", "function"),
        ]
        assert json.loads(calls[0]["function"]["arguments"]) == {"city": "Köln"}
        assert calls[1]["function"] == {"name": "now", "arguments": "{}"}
        assert sum(piece.size for piece in given) == len(
            'Let me see.weather{"city": "K\\u00f6ln"}now{}'
        )

    def test_arguments_in_the_start_of_a_block_are_forwarded(self) -> None:
        translate = translator()
        answer = message(tool_use("weather", {"city": "Ulm"}))
        given = [translate.piece(event(each)) for each in events_of(message())[:1]]
        block = {"type": "content_block_start", "index": 0, "content_block": answer["content"][0]}
        given += [translate.piece(event(each)) for each in (block, {"type": "content_block_stop"})]
        assert (
            put_together(chunks_of(given))["tool_calls"][0]["function"]["arguments"]
            == '{"city": "Ulm"}'
        )

    def test_deltas_of_alternating_blocks_stay_with_their_block(self) -> None:
        calls = [
            tool_use("weather", {"city": "Ulm"}, "toolu_1"),
            {"type": "server_tool_use", "id": "s", "name": "search", "input": {"q": 1}},
            tool_use("now", {}, "toolu_2"),
            tool_use("weather", {"city": "Köln"}, "toolu_3"),
        ]
        begun, *_, told, stop = events_of(message())
        by_block = [
            [each for each in events_of(message(*calls)) if each.get("index") == index]
            for index in range(len(calls))
        ]
        by_turns = [each for turn in zip_longest(*by_block) for each in turn if each]
        translate = translator()
        given = [translate.piece(event(each)) for each in (begun, *by_turns, told, stop)]
        made = put_together(chunks_of(given))["tool_calls"]
        assert [(call["id"], json.loads(call["function"]["arguments"])) for call in made] == [
            ("toolu_1", {"city": "Ulm"}),
            ("toolu_2", {}),
            ("toolu_3", {"city": "Köln"}),
        ]

    def test_arguments_never_belong_to_a_text_block(self) -> None:
        answer = message(text("Let me see."), tool_use("weather", {"city": "Ulm"}))
        translate = translator()
        told = [
            {**each, "index": 0} if each["type"] == "content_block_delta" else each
            for each in events_of(answer)
        ]
        made = put_together(chunks_of([translate.piece(event(each)) for each in told]))
        assert json.loads(made["tool_calls"][0]["function"]["arguments"]) == {"city": "Ulm"}

    def test_a_delta_without_an_index_belongs_to_the_newest_block(self) -> None:
        answer = message(tool_use("weather", {"city": "Ulm"}), tool_use("now", {}))
        translate = translator()
        told = [{**each, "index": None} for each in events_of(answer)]
        made = put_together(chunks_of([translate.piece(event(each)) for each in told]))
        assert [json.loads(call["function"]["arguments"]) for call in made["tool_calls"]] == [
            {"city": "Ulm"},
            {},
        ]

    def test_thinking_is_forwarded_and_counted_without_its_signature(self) -> None:
        given = pieces(message(thought("So be it"), text("Yes")))
        said = put_together(chunks_of(given))
        assert (said["reasoning_content"], said["content"]) == ("So be it", "Yes")
        assert [piece.size for piece in given if piece.size] == [5, 3, 3]

    def test_redacted_thinking_is_counted_and_handed_on_as_it_is(self) -> None:
        given = pieces(message({"type": "redacted_thinking", "data": "EmwKAhgB"}))
        assert sum(piece.size for piece in given) == 8
        assert put_together(chunks_of(given))["reasoning_content"] == ""
        (delta,) = [chunk["choices"][0]["delta"] for chunk in chunks_of(given)[1:-1]]
        assert [part["data"] for part in delta["reasoning_details"]] == ["EmwKAhgB"]

    @pytest.mark.parametrize(
        "odd",
        [
            {"type": "of tomorrow", "delta": 7},
            {"type": "content_block_start", "content_block": {"type": "server_tool_use", "id": "s", "input": {}}},
            {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{}"}},
            {"type": "content_block_delta", "delta": {"type": "citations_delta", "citation": {"cited_text": "x"}}},
            {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "x"}},
            {"type": "content_block_delta", "delta": {"type": "of tomorrow"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 9}},
            {"type": "message_delta", "usage": {"output_tokens": 9}},
        ],
    )  # fmt: skip
    def test_unknown_events_and_blocks_are_skipped(self, odd: dict[str, Any]) -> None:
        translate = translator()
        translate.piece(event(events_of(message())[0]))
        assert translate.piece(event(odd)) == Piece()

    def test_a_ping_and_a_comment_become_keep_alives(self) -> None:
        assert translator().piece(event({"type": "ping"})) == Piece(forward=KEEP_ALIVE)
        assert translator().piece(Event(b": hi\n\n", None, None)) == Piece(forward=KEEP_ALIVE)
        assert translator().piece(Event(b"\n", None, None)) == Piece()

    @pytest.mark.parametrize(
        ("kind", "problem"),
        [("overloaded_error", ProviderUnavailable), ("rate_limit_error", ProviderUnavailable),
         ("api_error", ProviderError), ("authentication_error", ProviderError), ("timeout_error", ProviderTimeout),
         ("invalid_request_error", ProviderRejected), ("of tomorrow", ProviderError), (["x"], ProviderError)],
    )  # fmt: skip
    def test_an_error_event_is_translated_by_its_status(
        self, kind: Any, problem: type[Problem]
    ) -> None:
        got = translator().piece(
            event({"type": "error", "error": {"type": kind, "message": "Words."}})
        )
        assert type(got.failed) is problem
        assert (got.failed.detail == "Words.") == (problem is ProviderRejected)

    def test_a_context_that_is_too_long_is_said_in_a_stream_too(self) -> None:
        error = {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"}
        failed = translator().piece(event({"type": "error", "error": error})).failed
        assert failed is not None
        assert (failed.code, failed.sdk_code) == ("provider_rejected", "context_length_exceeded")

    @pytest.mark.parametrize(
        "data",
        [b"not json", b"[1]", b"7", b"[" * 99_999, b"{}", {"type": "message_start"},
         {"type": "message_delta", "delta": 7},
         {"type": "message_start", "message": {"id": "x"}}, {"type": "error", "error": None},
         {"type": "content_block_delta", "delta": {"type": "text_delta", "text": 7}},
         {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "too early"}},
         {"type": "message_stop"}],
    )  # fmt: skip
    def test_an_invalid_event_is_a_failure(self, data: Any) -> None:
        assert isinstance(translator().piece(event(data)).failed, ProviderError)


class TestTokens:
    def test_the_start_reports_the_prompt_and_the_end_the_output(self) -> None:
        first, *rest, last, stop = pieces(message(text("Hello")))
        assert (first.prompt, first.reported) == (PromptUsage(30, 15, 4), None)
        assert all(piece.reported is None for piece in rest)
        assert (last.reported, last.finished) == (TokenUsage(30, 42, 15, cache_write=4), True)
        assert (stop.reported, stop.ended) == (None, True)

    def test_the_last_value_of_each_usage_field_counts(self) -> None:
        translate = translator()
        translate.piece(event(events_of(message())[0]))
        told = [
            ({}, {"output_tokens": 7}),
            ({"stop_reason": "end_turn"}, {"output_tokens": 9, "input_tokens": None}),
            ({}, {"output_tokens": 10, "input_tokens": 12, "cache_read_input_tokens": 0}),
            ({}, None),
        ]
        given = [
            translate.piece(event({"type": "message_delta", "delta": delta, "usage": usage}))
            for delta, usage in told
        ]
        assert [piece.reported for piece in given] == [
            None,
            TokenUsage(30, 9, 15, cache_write=4),
            # A zero takes nothing back.
            TokenUsage(31, 10, 15, cache_write=4),
            None,
        ]
        assert len(chunks_of(given)) == 1

    @pytest.mark.parametrize("more", [{}, {"delta": None}])
    def test_usage_alone_after_the_end_is_a_report(self, more: dict[str, Any]) -> None:
        translate = translator()
        for each in events_of(message(text("x")))[:-1]:
            translate.piece(event(each))
        told = {"type": "message_delta", "usage": {"output_tokens": 43}, **more}
        got = translate.piece(event(told))
        assert got == Piece(finished=True, reported=TokenUsage(30, 43, 15, cache_write=4))
        assert translate.piece(event({"type": "message_stop"})).ended

    def test_the_usage_at_the_start_is_no_report_of_the_whole(self) -> None:
        translate = translator()
        begun = translate.piece(event(events_of(message())[0]))
        ended = translate.piece(
            event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
        )
        assert begun.prompt is not None
        assert (ended.finished, ended.reported) == (True, None)

    @pytest.mark.parametrize(
        ("told", "before"),
        each_once(
            [{"input_tokens": 10}, {"output_tokens": None}, {"output_tokens": "9"}, [9]],
            [[], [{"output_tokens": 3}]],
        ),
    )
    def test_an_end_without_output_tokens_is_no_report(self, before: list[Any], told: Any) -> None:
        translate = translator()
        translate.piece(event(events_of(message())[0]))
        for usage, reason in [*((each, None) for each in before), (told, "end_turn")]:
            delta = {"stop_reason": reason}
            got = translate.piece(event({"type": "message_delta", "delta": delta, "usage": usage}))
        assert (got.finished, got.reported) == (True, None)

    def test_a_message_without_usage_reports_none(self) -> None:
        given = pieces(message(text("x"), usage=None), include_usage=True)
        assert all(piece.reported is None and piece.prompt is None for piece in given)
        assert all(chunk["choices"] for chunk in chunks_of(given))

    # The first look at the characters there are takes a second.
    @settings(suppress_health_check=[HealthCheck.too_slow])
    @given(
        st.lists(
            st.one_of(
                st.text(min_size=1).map(text),
                st.text(min_size=1).map(thought),
                st.dictionaries(st.text(), st.integers() | st.text()).map(
                    lambda given: tool_use("t", given)
                ),
            )
        )
    )
    def test_whole_and_streamed_answers_have_the_same_content(
        self, blocks: list[dict[str, Any]]
    ) -> None:
        answer = message(*blocks)
        whole, known, size = answered(json.dumps(answer).encode())
        streamed = pieces(answer)
        said, built = whole["choices"][0]["message"], put_together(chunks_of(streamed))
        assert built["content"] == (said["content"] or "")
        assert built["reasoning_content"] == said.get("reasoning_content", "")
        assert [call["function"] for call in built["tool_calls"]] == [
            call["function"] for call in said.get("tool_calls", [])
        ]
        assert sum(piece.size for piece in streamed) == size
        assert known in [piece.reported for piece in streamed]


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (400, ProviderRejected), (404, ProviderRejected), (413, ProviderRejected), (422, ProviderRejected),
            (401, ProviderError), (402, ProviderError), (403, ProviderError), (500, ProviderError),
            (429, ProviderUnavailable), (503, ProviderUnavailable), (529, ProviderUnavailable), (504, ProviderTimeout),
        ],
    )  # fmt: skip
    def test_only_the_callers_faults_are_shown_as_such(
        self, status: int, kind: type[Problem]
    ) -> None:
        said = json.dumps({"type": "error", "error": {"type": "x", "message": "Words."}}).encode()
        refusal = refusal_of(status, {"Retry-After": "7"}, said)
        assert type(refusal) is kind
        assert (refusal.detail == "Words.") == (kind is ProviderRejected)
        assert refusal.headers.get("Retry-After") == (
            "7" if status not in (400, 404, 413, 422) else None
        )

    @pytest.mark.parametrize(
        "words",
        ["Your credit balance is too low to access the API.", "You have reached your specified API usage limits.",
         "This bearer has no credit balance."],
    )  # fmt: skip
    def test_an_account_without_credit_is_not_the_callers_fault(self, words: str) -> None:
        said = json.dumps({"error": {"message": words}}).encode()
        assert type(refusal_of(400, {}, said)) is ProviderError

    def test_a_refused_key_is_not_the_callers_fault_whatever_the_status(self) -> None:
        said = json.dumps({"error": {"message": "Invalid API key."}}).encode()
        refusal = refusal_of(400, {"Retry-After": "7"}, said)
        assert type(refusal) is ProviderError
        assert refusal.headers["Retry-After"] == "7"

    def test_no_refusal_shows_the_credential(self, settings) -> None:
        said = json.dumps({"error": {"message": f"Bad key {settings.LLM_API_KEY()}"}}).encode()
        assert "Its reason is not shown (status 400)" in refusal_of(400, {}, said).detail


Asking = Callable[..., Call]
Serving = Callable[..., MessagesServer]


@pytest.mark.django_db
class TestThroughTheRelay:
    """Whole calls over sockets: admitted, asked, answered, settled."""

    @pytest.fixture(autouse=True)
    def serving(self, settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
        settings.LLM_PROVIDER = "anthropic"
        # The watch is another thread, which sees nothing of a test's transaction.
        monkeypatch.setattr(watch, "_start", lambda: None)
        servers: list[Any] = []

        def serve(*replies: Any) -> MessagesServer:
            servers.append(messages_server(*replies, api_key=settings.LLM_API_KEY()))
            server: MessagesServer = servers[-1].__enter__()
            settings.LLM_BASE_URL = server.base_url
            return server

        yield serve
        for server in servers:
            server.__exit__(None, None, None)

    @pytest.fixture
    def caller(self, pair: TokenPair, user: User) -> Caller:
        caller = load_caller(user_id=user.pk, session_id=Session.objects.get().pk)
        assert caller is not None
        # Tests change the catalogue after this.
        return replace(caller, catalogue_version=None)

    @pytest.fixture
    def ask(self, caller: Caller, now: datetime) -> Asking:
        def asking(*messages: dict[str, Any], **members: Any) -> Call:
            asked = chat(*messages, max_tokens=500, **members)
            return admit(caller=caller, request=asked, request_id="req", now=now)

        return asking

    @staticmethod
    def settled() -> tuple[int, int, int, str, str]:
        """Input, cached, output, source and end of the only call, which the month agrees with."""
        row, month = UsageRecord.objects.get(), MonthlyUsage.objects.get()
        assert row.provider == "default"
        assert (month.input_used, month.output_used) == (row.input_tokens, row.output_tokens)
        assert (month.input_reserved, month.output_reserved) == (0, 0)
        assert row.input_tokens is not None
        return row.input_tokens, row.cached_input_tokens, row.output_tokens, row.source, row.end

    def test_a_whole_answer_is_charged_as_reported(self, serving: Serving, ask: Asking) -> None:
        server = serving(message(thought("Hm."), text("Hello!")))
        answer = relay.complete(ask())
        assert answer["choices"][0]["message"]["content"] == "Hello!"
        assert answer["usage"]["total_tokens"] == 72
        assert server.bodies[0]["max_tokens"] == 500
        assert self.settled() == (30, 15, 42, "provider", "done")

    def test_a_stream_is_charged_before_its_last_event(self, serving: Serving, ask: Asking) -> None:
        serving(message(text("Hello, world!")))
        stream = relay.stream(ask(stream=True, stream_options={"include_usage": True}))
        got = b"".join(stream)
        stream.close()
        chunks = chunks_in(got)
        assert put_together(chunks)["content"] == "Hello, world!"
        assert chunks[-1]["usage"]["completion_tokens"] == 42
        assert got.endswith(b"data: [DONE]\n\n")
        assert self.settled() == (30, 15, 42, "provider", "done")

    def test_a_tool_is_called_and_its_result_sent_back(self, serving: Serving, ask: Asking) -> None:
        server = serving(
            message(thought("Hm."), tool_use("weather", {"city": "Ulm"}), stop_reason="tool_use"),
            message(text("It rains.")),
        )
        first = relay.complete(ask(tools=[WEATHER]))["choices"][0]
        assert first["finish_reason"] == "tool_calls"
        assert first["message"]["reasoning_content"] == "Hm."
        (call,) = first["message"]["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "rain"}
        last = relay.complete(ask(HI, first["message"], result, tools=[WEATHER]))
        assert last["choices"][0]["message"]["content"] == "It rains."
        assert [turn["role"] for turn in server.bodies[1]["messages"]] == [
            "user",
            "assistant",
            "user",
        ]

    def test_a_cut_stream_is_charged_for_the_output_delivered(
        self, serving: Serving, ask: Asking
    ) -> None:
        server = serving(message(text("x" * 5 * 806)))
        server.events = 3 + 806
        stream = relay.stream(ask(stream=True))
        got = b"".join(stream)
        stream.close()
        assert b"[DONE]" not in got
        assert b'"code": "provider_error"' in got or b'"code":"provider_error"' in got
        assert self.settled() == (30, 15, -(-806 * 5 // 4), "counted", "provider_failed")

    @pytest.mark.parametrize("told", [{"input_tokens": 11}, {"output_tokens": None}])
    def test_an_end_without_output_tokens_is_charged_for_the_output_delivered(
        self, serving: Serving, ask: Asking, told: dict[str, Any]
    ) -> None:
        answer = message(text("x" * 1_000))
        server = serving(answer)
        *server.extra, last, stop = events_of(answer)
        server.events, server.extra = 0, [*server.extra, {**last, "usage": told}, stop]
        stream = relay.stream(ask(stream=True))
        assert b"".join(stream).endswith(b"data: [DONE]\n\n")
        stream.close()
        assert self.settled() == (30, 15, 1_000 // 4, "counted", "done")

    def test_a_caller_who_leaves_is_charged_for_the_reported_prompt(self, ask: Asking) -> None:
        call = ask(stream=True)
        meter = asking(call, sent_at=time.monotonic())
        meter.state, meter.prompt = State.DELIVERING, PromptUsage(30, 15)
        meter.deltas, meter.size = 3, 8
        meter.first_delta_at = meter.delta_at = time.monotonic()
        call.settle(End.CLIENT_GONE)
        assert self.settled() == (30, 15, 3, "counted", "client_gone")

    def test_the_overhead_of_anthropics_system_prompt_is_reserved(self, ask: Asking) -> None:
        ask()
        ask(response_format={"type": "json_object"})
        bare, formed = UsageRecord.objects.order_by("reserved_input")
        assert formed.reserved_input > bare.reserved_input + TOOLS_PROMPT

    def test_an_image_reserves_the_providers_or_the_models_tokens(
        self, ask: Asking, settings
    ) -> None:
        settings.LLM_FETCHES = "yes"
        image = {"type": "image_url", "image_url": {"url": "https://a.test/b.png"}}
        shown = {"role": "user", "content": [image, text("?")]}
        bare = ask({"role": "user", "content": [text("?")]}).admission.estimate.tokens
        assert ask(shown).admission.estimate.tokens == bare + ANTHROPICS_LARGEST
        LanguageModel.objects.create(
            name=settings.LLM_DEFAULT_MODEL, provider_name="x", image_tokens=7
        )
        assert ask(shown).admission.estimate.tokens == bare + 7

    def test_an_overload_in_a_stream_ends_it_with_an_error_event(
        self, serving: Serving, ask: Asking
    ) -> None:
        server = serving(message(text("Hello, world!")))
        server.events = 4
        error = {"type": "overloaded_error", "message": "Overloaded"}
        server.extra = [{"type": "error", "error": error}]
        stream = relay.stream(ask(stream=True))
        got = b"".join(stream)
        stream.close()
        assert put_together(chunks_in(got)[:2])["content"] == "Hello"
        assert b"provider_unavailable" in got
        assert b"[DONE]" not in got
        assert self.settled() == (30, 15, 2, "counted", "provider_failed")

    @pytest.mark.parametrize("streamed", [False, True])
    @pytest.mark.parametrize(
        ("reply", "code"),
        [
            ((529, "overloaded_error", "Overloaded", {"Retry-After": "3"}), "provider_unavailable"),
            ((400, "invalid_request_error", "prompt is too long", {}), "provider_rejected"),
            ((401, "authentication_error", "invalid x-api-key", {}), "provider_error"),
        ],
    )  # fmt: skip
    def test_a_refusal_costs_nothing(
        self, serving: Serving, ask: Asking, reply: Any, code: str, streamed: bool
    ) -> None:
        serving(reply)
        call = ask(stream=streamed)
        with pytest.raises(Problem) as caught:
            (relay.stream if streamed else relay.complete)(call)
        assert caught.value.code == code
        assert self.settled() == (0, 0, 0, "counted", "provider_failed")

    def test_an_unsupported_call_is_neither_reserved_nor_sent(
        self, serving: Serving, ask: Asking
    ) -> None:
        server = serving(message())
        with pytest.raises(InvalidRequest):
            ask(logprobs=True)
        assert not UsageRecord.objects.exists()
        assert server.bodies == []


def test_the_servers_own_events_have_anthropics_form() -> None:
    begun, *_, told, stop = map(as_stream, events_of(message(text("x"))))
    assert begun.startswith(b'event: message_start\ndata: {"type": "message_start", "message": {')
    assert told.endswith(b'"usage": {"output_tokens": %d}}\n\n' % USAGE["output_tokens"])
    assert stop == b'event: message_stop\ndata: {"type": "message_stop"}\n\n'
