"""What the stand-in provider answers: text, tool calls, JSON, usage, refusals; one-shot and streamed."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import openai
import pytest
import requests
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.standins.provider.tokens import PER_IMAGE, PER_MESSAGE, PER_PROMPT, count
from tests.standins.provider_process import Provider
from tests.standins.wire import KEY, ask, deltas, events, post

OK = requests.codes.ok
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    "required": ["city", "unit", "days"],
    "additionalProperties": False,
}
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather.", "parameters": PARAMETERS},
}
CLOCK: ChatCompletionToolParam = {"type": "function", "function": {"name": "clock"}}


@pytest.fixture
def client(provider: Provider) -> Iterator[openai.OpenAI]:
    """The SDK, pointed at the stand-in."""
    with openai.OpenAI(base_url=provider.base_url, api_key=KEY, max_retries=0) as client:
        yield client


def answer(provider: Provider, text: str, **members: Any) -> dict[str, Any]:
    """The body of a one-shot answer."""
    response = post(provider, ask(text, **members))
    assert response.status_code == OK, response.text
    body: dict[str, Any] = response.json()
    return body


def content(body: dict[str, Any]) -> str:
    """The text of a one-shot answer."""
    text: str = body["choices"][0]["message"]["content"]
    return text


def test_the_answer_quotes_the_question_and_never_changes(provider: Provider) -> None:
    first, second = (answer(provider, "Where is the\n  café?") for _ in range(2))
    assert content(first).startswith("You wrote: “Where is the café?”.")
    assert content(first) == content(second)
    assert not content(first).isascii()
    assert first["id"] != second["id"]
    assert first["object"] == "chat.completion"
    assert first["model"] == "stand-in-small"
    assert first["system_fingerprint"].startswith("fp_")
    assert first["choices"][0]["finish_reason"] == "stop"


def test_a_long_question_is_quoted_in_part(provider: Provider) -> None:
    text = content(answer(provider, "word " * 1_000))
    assert "word…”" in text
    assert count(text) < 100


def test_usage_is_what_the_counting_rule_says(provider: Provider) -> None:
    body = answer(provider, "one two, three!")
    usage = body["usage"]
    assert usage["prompt_tokens"] == PER_PROMPT + PER_MESSAGE + 5
    assert usage["completion_tokens"] == count(content(body))
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 0


def test_an_image_counts_the_same_whatever_its_size(provider: Provider) -> None:
    def cost(*addresses: str) -> int:
        parts: list[dict[str, Any]] = [{"type": "text", "text": "What is this?"}]
        parts += [{"type": "image_url", "image_url": {"url": url}} for url in addresses]
        body = {"model": "stand-in-small", "messages": [{"role": "user", "content": parts}]}
        response = post(provider, body)
        assert response.status_code == OK, response.text
        tokens: int = response.json()["usage"]["prompt_tokens"]
        return tokens

    small, large = "data:image/png;base64,AAAA", "data:image/png;base64," + "A" * 100_000
    assert cost(small) == cost(large) == cost("https://example.com/a.png") == cost() + PER_IMAGE
    assert cost(small, large) == cost() + 2 * PER_IMAGE


@pytest.mark.parametrize("member", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_output_limit_is_obeyed(provider: Provider, member: str, stream: bool) -> None:
    whole = content(answer(provider, "hello"))
    limited: dict[str, Any] = {member: 7}
    if stream:
        chunks = events(provider, "hello", **limited)
        text, finish = "".join(deltas(chunks)), chunks[-1]["choices"][0]["finish_reason"]
    else:
        body = answer(provider, "hello", **limited)
        text, finish = content(body), body["choices"][0]["finish_reason"]
    assert (count(text), finish) == (7, "length")
    assert whole.startswith(text)


def test_an_answer_that_just_fits_its_limit_ends_by_itself(provider: Provider) -> None:
    size = answer(provider, "hello")["usage"]["completion_tokens"]
    assert answer(provider, "hello", max_tokens=size)["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("two", "one "),
        (["four", "three"], "one two "),
        (["nothing of this"], "one two three four"),
        (["one"], ""),
    ],
)
def test_a_stop_text_ends_the_answer_before_itself(
    provider: Provider, stop: Any, expected: str
) -> None:
    text = '[[stand-in: text="one two three four"]]'
    body = answer(provider, text, stop=stop)
    assert content(body) == expected
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == count(expected)
    assert "".join(deltas(events(provider, text, stop=stop))) == expected


def test_a_stream_says_the_same_in_openais_order(provider: Provider) -> None:
    chunks = events(provider, "hello", stream_options={"include_usage": True})
    whole = answer(provider, "hello")
    role, *middle, finish, used = chunks
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert all(set(chunk["choices"][0]["delta"]) == {"content"} for chunk in middle)
    assert finish["choices"][0]["delta"] == {}
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert used["choices"] == []
    assert used["usage"] == whole["usage"]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert "".join(deltas(chunks)) == content(whole)
    assert len(deltas(chunks)) == whole["usage"]["completion_tokens"]


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
def test_a_stream_that_is_not_asked_for_usage_gives_none(
    provider: Provider, options: dict[str, Any] | None
) -> None:
    chunks = events(provider, "hello", stream_options=options)
    assert all("usage" not in chunk and len(chunk["choices"]) == 1 for chunk in chunks)


def test_padding_is_sent_where_it_is_asked_for(provider: Provider) -> None:
    padded = events(provider, "hello", stream_options={"include_obfuscation": True})
    assert all(chunk["obfuscation"] for chunk in padded)
    assert all("obfuscation" not in chunk for chunk in events(provider, "hello"))


def test_the_sdk_reads_an_answer_and_a_stream(client: openai.OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Привет, мир 👋"},
    ]
    whole = client.chat.completions.create(model="stand-in-large", messages=messages)
    text = whole.choices[0].message.content
    assert text is not None
    assert "Привет, мир 👋" in text
    assert whole.usage is not None
    with client.chat.completions.stream(
        model="stand-in-large", messages=messages, stream_options={"include_usage": True}
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == text
    assert final.usage == whole.usage


def test_the_sdk_runs_a_tool_and_gets_the_last_word(client: openai.OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Oslo, please"}]
    asked = client.chat.completions.create(
        model="stand-in-small", messages=messages, tools=[WEATHER, CLOCK]
    )
    assert asked.choices[0].finish_reason == "tool_calls"
    assert asked.choices[0].message.content is None
    calls = asked.choices[0].message.tool_calls
    assert calls is not None
    assert len(calls) == 1
    call = calls[0]
    assert call.type == "function"
    assert call.function.name == "get_weather"
    arguments = json.loads(call.function.arguments)
    jsonschema_rs.validate(PARAMETERS, arguments)
    assert arguments["city"] == "Oslo, please"
    assert asked.usage is not None
    assert asked.usage.completion_tokens == count("get_weather") + count(call.function.arguments)
    messages += [
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": call.function.arguments},
                }
            ],
        },
        {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 21 °C"},
    ]
    ended = client.chat.completions.create(
        model="stand-in-small", messages=messages, tools=[WEATHER, CLOCK]
    )
    assert ended.choices[0].finish_reason == "stop"
    assert (ended.choices[0].message.content or "").startswith("The tool answered: “Sunny, 21 °C”.")


def test_the_sdk_assembles_tool_calls_from_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="stand-in-small",
        messages=[{"role": "user", "content": "Both [[stand-in: calls=3]]"}],
        tools=[WEATHER, CLOCK],
        stream_options={"include_usage": True},
    ) as stream:
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert final.choices[0].finish_reason == "tool_calls"
    assert calls is not None
    assert [call.function.name for call in calls] == ["get_weather", "clock", "get_weather"]
    assert len({call.id for call in calls}) == 3
    jsonschema_rs.validate(PARAMETERS, json.loads(calls[0].function.arguments))
    assert calls[1].function.arguments == "{}"
    assert final.usage is not None
    assert final.usage.completion_tokens == sum(
        count(call.function.name) + count(call.function.arguments) for call in calls
    )


@pytest.mark.parametrize(
    ("members", "called"),
    [
        ({"tool_choice": "none"}, None),
        ({"tool_choice": "required"}, ["get_weather", "clock"]),
        ({"tool_choice": {"type": "function", "function": {"name": "clock"}}}, ["clock", "clock"]),
        ({"parallel_tool_calls": False}, ["get_weather"]),
    ],
)
def test_the_choice_of_tools_is_obeyed(
    provider: Provider, members: dict[str, Any], called: list[str] | None
) -> None:
    body = answer(provider, "Go [[stand-in: calls=2]]", tools=[WEATHER, CLOCK], **members)
    calls = body["choices"][0]["message"].get("tool_calls")
    assert (calls and [call["function"]["name"] for call in calls]) == called


def test_an_output_limit_cuts_a_tool_call_short(provider: Provider) -> None:
    body = answer(provider, "Oslo", tools=[WEATHER], max_tokens=6)
    call = body["choices"][0]["message"]["tool_calls"][0]["function"]
    assert count(call["name"]) + count(call["arguments"]) == 6
    assert body["usage"]["completion_tokens"] == 6
    assert body["choices"][0]["finish_reason"] == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(call["arguments"])


def test_a_json_object_is_one(provider: Provider) -> None:
    wanted = {"type": "json_object"}
    value = json.loads(content(answer(provider, "As JSON, please", response_format=wanted)))
    assert "As JSON, please" in value["reply"]


def test_an_answer_by_schema_fits_it(provider: Provider) -> None:
    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "steps": {"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 2},
        },
        "required": ["title", "steps"],
        "$defs": {
            "step": {
                "type": "object",
                "properties": {"at": {"type": "string", "format": "date-time"}, "n": PARAMETERS},
                "required": ["at", "n"],
            }
        },
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "plan", "schema": schema}}
    value = json.loads(content(answer(provider, "A plan", response_format=wanted)))
    jsonschema_rs.validate(schema, value, validate_formats=True)
    assert value["title"] == "A plan"
    streamed = "".join(deltas(events(provider, "A plan", response_format=wanted)))
    assert json.loads(streamed) == value


def test_log_probabilities_come_where_asked_for(provider: Provider) -> None:
    body = answer(provider, "hello", logprobs=True, top_logprobs=2)
    entries = body["choices"][0]["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == content(body)
    assert max(len(entry["top_logprobs"]) for entry in entries) == 2
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == content(body)
    chunk = events(provider, "hello", logprobs=True)[1]
    assert chunk["choices"][0]["logprobs"]["content"][0]["token"] == "You"
    assert answer(provider, "hello")["choices"][0]["logprobs"] is None


USER = {"role": "user", "content": "hello"}
CALLED = {
    "role": "assistant",
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    ],
}


@pytest.mark.parametrize(
    ("members", "status", "param", "code"),
    [
        ({"model": None}, 400, "model", None),
        ({"model": 5}, 400, "model", "invalid_type"),
        ({"model": "gpt-4o"}, 404, "model", "model_not_found"),
        ({"messages": None}, 400, "messages", "missing_required_parameter"),
        ({"messages": []}, 400, "messages", "empty_array"),
        ({"messages": "hello"}, 400, "messages", "invalid_type"),
        ({"messages": ["hello"]}, 400, "messages[0]", "invalid_type"),
        ({"messages": [{"content": "x"}]}, 400, "messages[0].role", "missing_required_parameter"),
        ({"messages": [{"role": "bot", "content": "x"}]}, 400, "messages[0].role", "invalid_value"),
        (
            {"messages": [USER, {"role": "user"}]},
            400,
            "messages[1].content",
            "missing_required_parameter",
        ),
        ({"messages": [{**USER, "content": 1}]}, 400, "messages[0].content", "invalid_type"),
        (
            {"messages": [{**USER, "content": [{"type": "input_audio"}]}]},
            400,
            "messages[0].content[0].type",
            "invalid_value",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
                ]
            },
            400,
            "messages[0].content[0].image_url.url",
            "invalid_image_url",
        ),
        (
            {"messages": [USER, {"role": "tool", "tool_call_id": "call_1", "content": "x"}]},
            400,
            "messages[1].role",
            None,
        ),
        ({"messages": [USER, CALLED, USER]}, 400, "messages[2]", None),
        ({"messages": [USER, CALLED]}, 400, "messages[1]", None),
        ({"messages": [{**CALLED, **USER}]}, 400, "messages[0].tool_calls", None),
        ({"messages": [{**USER, "refusal": ["x"]}]}, 400, "messages[0].refusal", "invalid_type"),
        ({"max_tokens": 0}, 400, "max_tokens", "integer_below_min_value"),
        ({"max_tokens": "9"}, 400, "max_tokens", "invalid_type"),
        ({"max_tokens": True}, 400, "max_tokens", "invalid_type"),
        (
            {"max_tokens": 5, "max_completion_tokens": 5},
            400,
            "max_tokens",
            "invalid_parameter_combination",
        ),
        ({"temperature": 2.5}, 400, "temperature", "decimal_above_max_value"),
        ({"top_p": -1}, 400, "top_p", "decimal_below_min_value"),
        ({"n": 2}, 400, "n", "integer_above_max_value"),
        ({"stop": ["1", "2", "3", "4", "5"]}, 400, "stop", "array_above_max_length"),
        ({"stop": 1}, 400, "stop", "invalid_type"),
        ({"stream": "yes"}, 400, "stream", "invalid_type"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options", None),
        (
            {"stream": True, "stream_options": {"usage": True}},
            400,
            "stream_options.usage",
            "unknown_parameter",
        ),
        ({"tools": []}, 400, "tools", "empty_array"),
        ({"tools": [{"type": "retrieval"}]}, 400, "tools[0].type", "invalid_value"),
        (
            {"tools": [{"type": "function", "function": {"name": "no spaces"}}]},
            400,
            "tools[0].function.name",
            "invalid_value",
        ),
        ({"tool_choice": "auto"}, 400, "tool_choice", None),
        (
            {
                "tools": [CLOCK],
                "tool_choice": {"type": "function", "function": {"name": "other"}},
            },
            400,
            "tool_choice",
            None,
        ),
        ({"response_format": {"type": "yaml"}}, 400, "response_format.type", "invalid_value"),
        ({"response_format": {"type": "json_object"}}, 400, "messages", None),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"$ref": "#/$defs/none"}},
                }
            },
            400,
            "response_format",
            "invalid_json_schema",
        ),
        ({"top_logprobs": 3}, 400, "top_logprobs", None),
        ({"reasoning_effort": "huge"}, 400, "reasoning_effort", "invalid_value"),
        ({"api_key": "x"}, 400, "api_key", None),
        (
            {"messages": [{"role": "user", "content": "a " * 128_001}]},
            400,
            "messages",
            "context_length_exceeded",
        ),
    ],
)
def test_a_bad_request_is_refused_as_openai_does(
    provider: Provider, members: dict[str, Any], status: int, param: str, code: str | None
) -> None:
    refused = post(provider, {"model": "stand-in-small", "messages": [USER], **members})
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert set(error) == {"message", "type", "param", "code"}


def test_members_that_change_nothing_are_taken(provider: Provider) -> None:
    plain = content(answer(provider, "hello"))
    members = {
        "temperature": 0,
        "top_p": 1,
        "seed": 7,
        "presence_penalty": -2,
        "frequency_penalty": 2.0,
        "logit_bias": {"50256": -100},
        "reasoning_effort": "low",
        "user": "someone",
        "metadata": {"a": "b"},
        "store": False,
        "n": 1,
        "stop": None,
        "response_format": {"type": "text"},
        "tools": None,
    }
    assert content(answer(provider, "hello", **members)) == plain


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[1]", b'"text"', b"\xff\xfe{}", b'{"a": NaN}', b"[" * 100_000]
)
def test_a_body_that_is_no_json_object_is_refused(provider: Provider, raw: bytes) -> None:
    with requests.Session() as session:
        session.trust_env = False
        refused = session.post(
            f"{provider.base_url}/chat/completions",
            data=raw,
            headers={"Authorization": f"Bearer {KEY}"},
            timeout=30,
        )
    assert refused.status_code == requests.codes.bad_request
    assert "JSON" in refused.json()["error"]["message"]


def test_half_a_surrogate_pair_breaks_nothing(provider: Provider) -> None:
    text = content(answer(provider, "broken \ud83d emoji"))
    assert "broken ? emoji" in text
