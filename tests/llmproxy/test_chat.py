"""Contents of a model call, and the parts that are passed on."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from config.platform.problems.problem import InvalidRequest, MalformedRequest
from llmproxy.prompts.estimates import Measure, prompt_estimate
from llmproxy.requests.chat import parse
from llmproxy.requests.checking import MAX_MEMBERS, MAX_SEARCHED, MAX_VALUES
from tests.llmproxy.targets import target

HELLO = [{"role": "user", "content": "hello"}]
PDF = "data:application/pdf;base64,JVBERi0xLjQK"
TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def faults(data: dict[str, Any], *, stream: bool | None = False) -> list[tuple[str, str]]:
    """The faults of a call at a provider whose members are those of its dialect."""
    with pytest.raises(InvalidRequest) as refusal:
        target().check(parse(data, stream=stream))
    return [(fault.pointer, fault.code) for fault in refusal.value.errors]


def test_one_message_is_a_valid_call() -> None:
    chat = parse({"messages": HELLO}, stream=False)
    assert chat.members == {"messages": HELLO}
    assert (chat.model, chat.output_wanted, chat.stream, chat.include_usage) == (
        None,
        None,
        False,
        False,
    )


def test_every_supported_member_is_forwarded_or_kept() -> None:
    members = {
        "messages": [
            {"role": "developer", "content": "be brief"},
            {
                "role": "user",
                "name": "ada",
                "content": [
                    {"type": "text", "text": "what is this?"},
                    {
                        "type": "image_url",
                        "image_url": {"url": "data:image/png;base64,AA", "detail": "low"},
                    },
                ],
            },
            {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ],
        "temperature": 0.5,
        "top_p": 1,
        "stop": ["\n"],
        "seed": 1,
        "presence_penalty": -2,
        "frequency_penalty": 2,
        "logit_bias": {"50256": -100},
        "logprobs": True,
        "top_logprobs": 3,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": {"a": [1]}},
        },
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"anything": {}}}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
    }
    kept = {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 1,
        "max_tokens": 9,
    }
    dropped = {"user": "u", "metadata": {"a": "b"}, "store": False}
    chat = parse({**members, **kept, **dropped}, stream=None)
    assert chat.members == members
    assert (chat.model, chat.stream, chat.include_usage) == ("m", True, True)
    assert chat.output_wanted == 9


def test_null_is_the_same_as_absent() -> None:
    chat = parse(
        {"messages": HELLO, "temperature": None, "tools": None, "max_tokens": None}, stream=None
    )
    assert chat.members == {"messages": HELLO}
    assert not chat.stream


def test_an_answer_can_be_sent_back_unchanged() -> None:
    answer = {
        "role": "assistant",
        "content": "hi",
        "refusal": None,
        "annotations": [],
        "audio": None,
    }
    chat = parse({"messages": [*HELLO, answer]}, stream=False)
    assert chat.members["messages"][1] == {"role": "assistant", "content": "hi", "refusal": None}


BACK: dict[str, Any] = {
    "role": "assistant", "content": "hi", "refusal": "no", "name": "n", "id": "i", "reasoning": "r",
    "reasoning_content": "r", "phase": "final_answer", "token_id": 7, "extra_content": {"a": 1},
    "function_call": {"name": "f", "arguments": "{}"}, "audio": {"id": "a", "data": "AAAA"},
    "provider_specific_fields": {"a": [1]},
    "tool_calls": [{
        "id": "c1", "type": "function", "provider_specific_fields": {"thought_signature": "s"},
        "function": {"name": "f", "arguments": "{}", "description": None, "provider_specific_fields": {"a": 1}},
    }],
}  # fmt: skip


ANSWERED = (
    *(
        "role",
        "content",
        "refusal",
        "tool_calls",
        "function_call",
        "audio",
        "annotations",
        "name",
        "id",
    ),
    *("reasoning", "reasoning_content", "reasoning_details", "extra_content", "thinking_blocks"),
    *("citations", "images", "provider_specific_fields", "executed_tools", "token_id", "phase"),
)


@pytest.mark.parametrize("name", ANSWERED)
def test_each_known_member_of_an_answers_message_can_be_sent_back(name: str) -> None:
    said = {"role": "assistant", "content": "hi", name: BACK.get(name, [{"type": "x", "a": 1}])}
    chat = parse({"messages": [*HELLO, said]}, stream=False)
    target().check(chat)
    assert chat.members["messages"][1]["content"] == "hi"


SAID = (
    *("audio", "function_call", "thinking_blocks", "executed_tools"),
    *("citations", "images", "phase", "token_id"),
)


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize(
    "other",
    [{"role": "user", "content": "?"}, {"role": "tool", "tool_call_id": "c", "content": "4"}],
)
def test_the_members_of_a_model_are_not_lost_from_others(name: str, other: dict[str, Any]) -> None:
    told = {**other, name: BACK.get(name, [{"a": 1}])}
    assert faults({"messages": [*HELLO, told]}) == [(f"/messages/1/{name}", "invalid")]
    assert parse({"messages": [{**other, name: None}]}, stream=False).members["messages"] == [other]


def test_members_that_an_sdk_adds_are_not_forwarded() -> None:
    parsed = {"name": "f", "arguments": "{}", "parsed_arguments": {"a": 1}}
    call = {"id": "c1", "type": "function", "index": 0, "function": parsed}
    answer = {"role": "assistant", "content": "{}", "parsed": {"a": 1}, "tool_calls": [call]}
    chat = parse({"messages": [*HELLO, answer], "tools": []}, stream=False)
    assert chat.members == {
        "messages": [*HELLO, {"role": "assistant", "content": "{}", "tool_calls": [TOOL_CALL]}]
    }


@pytest.mark.parametrize(
    "repeated",
    [
        # As the Agents SDK for JS holds text beside calls of tools (openai/openai-agents-js).
        {"role": "assistant", "refusal": None, "annotations": [], "tool_calls": [TOOL_CALL]},
        {"role": "assistant", "audio": None, "function_call": None, "id": "msg_1", "parsed": {"a": 1}},
        {"annotations": [{"type": "url_citation"}], "logprobs": None, "finish_reason": "stop", "index": 0},
        {"tool_calls": [], "reasoning_content": "", "name": None},
    ],
)  # fmt: skip
def test_members_that_a_text_part_repeats_from_its_message_are_dropped(
    repeated: dict[str, Any],
) -> None:
    text = {"type": "text", "text": "I look."}
    said = {"role": "assistant", "content": [text], "tool_calls": [TOOL_CALL]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "42"}
    given = {**said, "content": [{**text, **repeated}]}
    chat = parse({"messages": [*HELLO, given, result]}, stream=False)
    assert chat.unknown == ()
    assert chat.members["messages"] == [*HELLO, said, result]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_members_of_a_text_part_alone_are_not_dropped(role: str) -> None:
    part = {"type": "text", "text": "I look.", "tool_calls": [TOOL_CALL]}
    message = {"role": role, "content": [part]}
    pointer = "/messages/0/content/0/tool_calls"
    assert faults({"messages": [message]}) == [(pointer, "unknown")]


@pytest.mark.parametrize("tools", [[], None])
@pytest.mark.parametrize(
    "members", [{"tool_choice": "none"}, {"tool_choice": "auto"}, {"parallel_tool_calls": False}]
)
def test_members_about_tools_are_dropped_without_tools(tools: Any, members: dict[str, Any]) -> None:
    chat = parse({"messages": HELLO, "tools": tools, **members}, stream=False)
    assert chat.members == {"messages": HELLO}


def test_a_forced_tool_choice_without_tools_is_forwarded() -> None:
    chat = parse({"messages": HELLO, "tools": [], "tool_choice": "required"}, stream=False)
    assert chat.members["tool_choice"] == "required"


def test_thoughts_go_back_to_the_server_and_notes_of_programs_do_not() -> None:
    thoughts = {
        "reasoning": "Hm.",
        "reasoning_content": "Hm.",
        "reasoning_details": [{"text": "Hm."}],
        "extra_content": {"google": {"thought_signature": "c2ln"}},
        "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}],
    }
    notes = {"provider_specific_fields": {"x": 1}, "id": "msg_1", "annotations": [{}]}
    answer = {"role": "assistant", "content": "Hi", **notes, **thoughts}
    messages = [{"role": "user", "content": "x"}, answer, {"role": "user", "content": "y"}]
    sent = parse({"messages": messages}, stream=False).members["messages"]
    assert sent[1] == {"role": "assistant", "content": "Hi", **thoughts}


def test_thoughts_go_back_from_where_litellm_holds_them() -> None:
    thoughts = {"reasoning_details": [{"text": "Hm."}], "extra_content": {"google": {}}}
    others = {**thoughts, "thinking_blocks": "none", "cost": 1}
    answer = {"role": "assistant", "content": "Hi", "provider_specific_fields": others}
    sent = parse({"messages": [answer]}, stream=False).members["messages"]
    assert sent == [{"role": "assistant", "content": "Hi", **thoughts}]
    mine = {**answer, "reasoning_details": [{"text": "Ah."}]}
    (said,) = parse({"messages": [mine]}, stream=False).members["messages"]
    assert said["reasoning_details"] == [{"text": "Ah."}]
    (asked,) = parse({"messages": [{**answer, "role": "user"}]}, stream=False).members["messages"]
    assert asked == {"role": "user", "content": "Hi"}


def test_members_of_openais_dialect_are_forwarded() -> None:
    function = {"type": "function", "function": {"name": "files.read"}}
    custom = {"type": "custom", "custom": {"name": "shell", "format": {"type": "text"}}}
    members = {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
                    {
                        "type": "input_audio",
                        "input_audio": {"data": "UklGRiQAAABXQVZF", "format": "wav"},
                    },
                    {"type": "text", "text": "?", "prompt_cache_breakpoint": {"mode": "explicit"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
                ],
            },
        ],
        "tools": [function, custom],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [function]},
        },
        "verbosity": "low",
        "reasoning_effort": "max",
        "prediction": {"type": "content", "content": [{"type": "text", "text": "x"}]},
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
        "safety_identifier": "s",
        "service_tier": "auto",
        "stop": [str(index) for index in range(16)],
    }
    chat = parse({**members, "modalities": ["text"], "max_completion_tokens": 9}, stream=False)
    assert chat.members == members
    assert chat.output_wanted == 9


def test_null_is_taken_wherever_a_member_is_optional() -> None:
    image = {"url": "data:image/png;base64,AA", "detail": None}
    call = {"id": "c1", "type": None, "index": None, "extra_content": None, "custom": None}
    function = {"name": "f", "description": None, "parameters": None, "strict": None}
    chat = parse(
        {
            "model": None,
            "messages": [
                {
                    "role": "user",
                    "name": None,
                    "tool_calls": None,
                    "tool_call_id": None,
                    "content": [
                        {"type": "image_url", "image_url": image, "text": None},
                        {"type": "text", "text": "?", "cache_control": None},
                    ],
                },
                {
                    "role": "assistant",
                    "tool_calls": [{**call, "function": {"name": "f", "arguments": None}}],
                    "reasoning_content": None,
                    "extra_content": None,
                },
            ],
            "tools": [{"type": "function", "function": function, "custom": None}],
            "response_format": {"type": "text", "json_schema": None},
            "stream_options": {"include_usage": None},
            **dict.fromkeys(("verbosity", "prediction", "service_tier", "modalities", "store")),
        },
        stream=False,
    )
    image = {"url": "data:image/png;base64,AA"}
    assert chat.members == {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": image},
                    {"type": "text", "text": "?"},
                ],
            },
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
                ],
            },
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "response_format": {"type": "text"},
    }


@pytest.mark.parametrize("content", ["x", None])
def test_no_calls_of_tools_are_given_back_as_none(content: str | None) -> None:
    answer = {"role": "assistant", "content": content, "tool_calls": []}
    chat = parse({"messages": [*HELLO, answer]}, stream=False)
    assert chat.members["messages"][1] == {"role": "assistant", "content": content}


def test_content_without_parts_is_none() -> None:
    messages = [
        {"role": "assistant", "content": [], "tool_calls": [TOOL_CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": []},
    ]
    sent = parse({"messages": messages}, stream=False).members["messages"]
    assert [each["content"] for each in sent] == [None, ""]


@pytest.mark.parametrize("limit", [-1, None])
def test_no_limit_of_the_callers_is_none(limit: int | None) -> None:
    chat = parse({"messages": HELLO, "max_tokens": limit}, stream=False)
    assert chat.output_wanted is None
    chat = parse({"messages": HELLO, "max_tokens": limit, "max_completion_tokens": 7}, stream=False)
    assert chat.output_wanted == 7


def test_a_limit_is_a_whole_number_however_it_is_written() -> None:
    assert repr(parse({"messages": HELLO, "max_tokens": 20.0}, stream=False).output_wanted) == "20"


def test_the_labels_of_a_caller_are_for_the_record() -> None:
    chat = parse({"messages": HELLO, "user": "u", "metadata": {"a": "b"}}, stream=False)
    assert chat.labels == {"user": "u", "metadata": {"a": "b"}}
    assert chat.members == {"messages": HELLO}


@pytest.mark.parametrize(
    ("members", "pointer", "word"),
    [
        ({"n": 2}, "/n", "each further one"),
        ({"store": True}, "/store", "account"),
        ({"service_tier": "priority"}, "/service_tier", "prices of their own"),
        ({"service_tier": "flex"}, "/service_tier", "prices of their own"),
        ({"modalities": ["text", "audio"]}, "/modalities/1", "cost money outside tokens"),
        ({"audio": {"voice": "alloy", "format": "wav"}}, "/audio", "costs money outside tokens"),
        ({"web_search_options": {}}, "/web_search_options", "costs money outside tokens"),
        ({"search_parameters": {"mode": "on"}}, "/search_parameters", "costs money"),
        ({"tools": [{"type": "web_search"}]}, "/tools/0/type", "costs money outside tokens"),
        ({"functions": [{"name": "f"}]}, "/functions", "tools"),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f", "file_data": PDF}}]}]},
            "/messages/0/content/0/file/file_id",
            "as file_data",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("passes_all", [False, True])
def test_a_member_that_costs_money_outside_tokens_is_refused_with_the_reason(
    members: dict[str, Any], pointer: str, word: str, passes_all: bool
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        target()._replace(passes_all=passes_all).check(
            parse({"messages": HELLO, **members}, stream=False)
        )
    (fault,) = refusal.value.errors
    assert fault.pointer == pointer
    assert word in fault.detail


class TestMembersOfNoList:
    BODY: dict[str, Any] = {
        "messages": [
            {
                "role": "user",
                "prefix": True,
                "content": [{"type": "text", "text": "?", "min_pixels": 9}],
            }
        ],
        "tools": [{"type": "function", "function": {"name": "f"}, "eager": True}],
        "top_k": 5,
        "chat_template_kwargs": {"enable_thinking": False},
    }

    def test_unknown_members_reach_a_provider_that_takes_all(self) -> None:
        chat = parse(self.BODY, stream=False)
        assert len(chat.unknown) == 5
        assert chat.members == self.BODY
        open_target = target()._replace(passes_all=True)
        open_target.check(chat)
        sent = open_target.codec(chat.surface).outgoing(chat, target=open_target, output_limit=9)
        limit = {"model": "theirs", "max_tokens": 9}
        assert json.loads(sent.body) == self.BODY | limit

    def test_unknown_members_of_a_returned_tool_call_are_kept(self) -> None:
        function = {"name": "f", "arguments": "{}", "trace": "a"}
        call = {"id": "c", "type": "function", "function": function, "thought": {"a": None}}
        said = {"role": "assistant", "content": None, "tool_calls": [{**call, "index": 0}]}
        chat = parse({"messages": [*HELLO, said]}, stream=False)
        target().check(chat)
        assert chat.members["messages"][1]["tool_calls"] == [call]

    def test_unknown_members_are_refused_at_any_other_provider(self) -> None:
        assert sorted(faults(self.BODY)) == [
            ("/chat_template_kwargs", "unknown"),
            ("/messages/0/content/0/min_pixels", "unknown"),
            ("/messages/0/prefix", "unknown"),
            ("/tools/0/eager", "unknown"),
            ("/top_k", "unknown"),
        ]

    def test_other_faults_are_refused_at_every_provider(self) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            parse({**self.BODY, "temperature": 3}, stream=False)
        assert "/temperature" in [fault.pointer for fault in refusal.value.errors]

    def test_all_of_them_count(self) -> None:
        long = "word " * 500
        for body in (
            {"messages": HELLO, "guidance": long},
            {"messages": [{**HELLO[0], "guidance": long}]},
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "?", "of": long}]}]},
            {"messages": HELLO, "tools": [{"type": "function", "function": {"name": "f"}, "of": long}]},
        ):  # fmt: skip
            prompt = parse(body, stream=False).prompt
            measures = [Measure("o200k_base", Decimal(1))]
            assert prompt_estimate(prompt, measures=measures).tokens > 500


def test_the_smaller_of_two_limits_counts() -> None:
    chat = parse({"messages": HELLO, "max_tokens": 50, "max_completion_tokens": 20}, stream=False)
    assert chat.output_wanted == 20


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, ("/messages", "required")),
        ({"messages": []}, ("/messages", "invalid")),
        ({"messages": HELLO, "max_tokens": 0}, ("/max_tokens", "invalid")),
        ({"messages": HELLO, "max_tokens": 0.0}, ("/max_tokens", "invalid")),
        ({"messages": HELLO, "max_completion_tokens": 0}, ("/max_completion_tokens", "invalid")),
        ({"messages": HELLO, "max_tokens": 9, "max_completion_tokens": 0}, ("/max_completion_tokens", "invalid")),
        ({"messages": HELLO, "api_key": "x"}, ("/api_key", "unknown")),
        ({"messages": HELLO, "a/b~c": 1}, ("/a~1b~0c", "unknown")),
        ({"messages": [{"role": "user", "content": "x", "api_base": "y"}]}, ("/messages/0/api_base", "unknown")),
        ({"messages": [{"role": "robot", "content": "x"}]}, ("/messages/0/role", "invalid")),
        ({"messages": [{"role": "user"}]}, ("/messages/0/content", "required")),
        ({"messages": [{"role": "tool", "content": "x"}]}, ("/messages/0/tool_call_id", "required")),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc"}}]}]},
            ("/messages/0/content/0/image_url/url", "invalid"),
        ),
        ({"messages": HELLO, "n": 2}, ("/n", "invalid")),
        ({"messages": HELLO, "store": True}, ("/store", "invalid")),
        ({"messages": HELLO, "stream": True}, ("/stream", "invalid")),
        ({"messages": HELLO, "temperature": 3}, ("/temperature", "invalid")),
        ({"messages": HELLO, "max_tokens": -2}, ("/max_tokens", "invalid")),
        ({"messages": HELLO, "tool_choice": "maybe"}, ("/tool_choice", "invalid")),
        ({"messages": HELLO, "tool_choice": 5}, ("/tool_choice", "invalid")),
        ({"messages": HELLO, "tool_choice": {"type": "function", "function": 5}}, ("/tool_choice/function", "invalid")),
        ({"messages": HELLO, "reasoning_effort": "much"}, ("/reasoning_effort", "invalid")),
        ({"messages": HELLO, "response_format": {"type": "json_schema"}}, ("/response_format/json_schema", "required")),
    ],
)  # fmt: skip
def test_each_fault_has_its_pointer(data: dict[str, Any], expected: tuple[str, str]) -> None:
    assert faults(data) == [expected]


def many(number: int) -> dict[str, Any]:
    return {str(index): 0 for index in range(number)}


TAKEN_WITH_MANY: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
    lambda members: {"messages": HELLO, "logit_bias": members},
    lambda members: {"messages": HELLO, "metadata": members},
    lambda members: {"messages": [*HELLO, {"role": "assistant", "content": "", "parsed": [members]}]},
    lambda members: {
        "messages": HELLO,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": members}}}],
    },
]  # fmt: skip
FAULTY_WITH_MANY: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
    lambda members: {"messages": HELLO, **members},
    lambda members: {"messages": [{"role": "user", "content": "x", **members}]},
    lambda members: {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", **members}]}]},
    lambda members: {"messages": HELLO, "stream_options": members},
    lambda members: {"messages": HELLO, "tools": [{"type": "function", "function": {"name": "f", **members}}]},
    lambda members: {"messages": HELLO, "response_format": {"type": "text", **members}},
]  # fmt: skip


@pytest.mark.parametrize("body", [*TAKEN_WITH_MANY, *FAULTY_WITH_MANY])
def test_an_object_with_too_many_members_is_refused(
    body: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    with pytest.raises(MalformedRequest, match="malformed_request"):
        parse(body(many(MAX_MEMBERS + 1)), stream=False)


@pytest.mark.parametrize("body", TAKEN_WITH_MANY)
def test_an_object_may_have_many_members(body: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    assert parse(body(many(MAX_MEMBERS)), stream=False)


@pytest.mark.parametrize("body", FAULTY_WITH_MANY)
def test_only_some_of_many_unknown_members_are_listed(
    body: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    assert [code for _, code in faults(body(many(MAX_SEARCHED - 20)))] == ["unknown"] * 20
    assert [code for _, code in faults(body(many(MAX_MEMBERS - 20)))] == ["unknown"]


def test_a_call_with_too_many_values_is_refused() -> None:
    details = [[0] * 1000] * 98
    answer = {"role": "assistant", "content": "x", "reasoning_details": details}
    body = {"messages": [*HELLO, answer], "stop": ["x"], "metadata": {}}
    # Members, messages, their members, details, what is in them, and the stop.
    size = 3 + 2 + 2 + 3 + 98 + 98_000 + 1
    details.append([0] * (MAX_VALUES - size - 1))
    assert parse(body, stream=False)
    body["metadata"] = {"one": "more"}
    with pytest.raises(MalformedRequest):
        parse(body, stream=False)


def test_a_large_body_reports_its_first_fault() -> None:
    wrong = [{"role": "robot", "content": "x"}] * 2
    assert len(faults({"messages": wrong, "metadata": {"a": [0] * (MAX_SEARCHED // 2)}})) == 2
    assert len(faults({"messages": wrong, "metadata": {"a": [0] * MAX_SEARCHED}})) == 1


def test_a_fault_repeats_no_long_name() -> None:
    names = [f"{index}{'k' * 30_000}" for index in range(30)]
    found = faults({"messages": HELLO, **dict.fromkeys(names, 1)})
    assert len(found) == 20
    assert max(len(pointer) for pointer, _ in found) == 1 + 100
    ((pointer, code),) = faults({"messages": HELLO, "logit_bias": {names[0]: "x"}})
    assert (len(pointer), code) == (len("/logit_bias/") + 100, "invalid")


def test_several_faults_are_listed_together_and_repeat_no_value() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse(
            {"messages": [{"role": "canary-7d1", "content": 5}], "stop": {"canary-7d1": 1}},
            stream=False,
        )
    assert len(refusal.value.errors) == 3
    assert "canary" not in repr(refusal.value.errors)
