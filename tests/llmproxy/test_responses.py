"""The Responses API without state: what a request may hold, and what is passed on of it."""

from json import dumps, loads
from typing import Any

import pytest

from config.platform.problems.problem import InvalidRequest, Problem
from llmproxy.dialects.openai.responses import Responses
from llmproxy.dialects.protocol import TokenUsage
from llmproxy.models import Route
from llmproxy.prompts.estimates import Measure, images_in, prompt_estimate
from llmproxy.prompts.files import files_tokens
from llmproxy.requests.call_request import Surface
from llmproxy.requests.checking import read_schemas
from llmproxy.requests.responses import parse
from tests.effort import takes_at_most
from tests.llmproxy.targets import target

CHAT = read_schemas("chat")["components"]
RESPONSES = read_schemas("responses")["components"]["ResponsesRequest"]["properties"]
HELLO = [{"role": "user", "content": "hello"}]
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}],
}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" * 500}


def sent(data: dict[str, Any], *, limit: int = 100) -> dict[str, Any]:
    outgoing = Responses().outgoing(parse(data), target=target(), output_limit=limit)
    assert outgoing.url.endswith("/v1/responses")
    body: dict[str, Any] = loads(outgoing.body)
    return body


def estimate(data: dict[str, Any]) -> int:
    request = parse(data)
    overhead = Responses().prompt_overhead(request)
    measure = Measure("o200k_base", Route.FIRST_FACTOR)
    return prompt_estimate(request.prompt, measures=[measure], overhead=overhead).tokens


def test_a_text_is_a_valid_request_and_nothing_is_stored() -> None:
    assert sent({"input": "hello"}) == {
        "input": "hello",
        "model": "theirs",
        "max_output_tokens": 100,
        "store": False,
    }


def test_every_supported_member_is_forwarded_or_kept() -> None:
    members = {
        "input": [
            *HELLO,
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "what is this?"},
                    {
                        "type": "input_image",
                        "image_url": "data:image/png;base64,AA",
                        "detail": "low",
                    },
                ],
            },
            THOUGHT,
            CALL,
            RESULT,
            {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "y"},
            SAID,
        ],
        "instructions": "be brief",
        "tools": [
            {"type": "function", "name": "f", "parameters": {"a": None}, "strict": None},
            {
                "type": "custom",
                "name": "g",
                "format": {"type": "grammar", "syntax": "regex", "definition": "a+"},
            },
        ],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}],
        },
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {
            "format": {"type": "json_schema", "name": "x", "schema": {"default": None}},
            "verbosity": "low",
        },
        "include": ["reasoning.encrypted_content"],
        "temperature": 0.5,
        "top_p": 1,
        "top_logprobs": 2,
        "truncation": "auto",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "service_tier": "auto",
        "stream_options": {"include_obfuscation": False},
    }
    kept = {"model": "m", "stream": True, "max_output_tokens": 99, "store": False}
    dropped = {
        "prompt": "",
        "previous_response_id": "",
        "user": "u",
        "metadata": {"a": "b"},
        "background": None,
        "conversation": None,
    }
    request = parse({**members, **kept, **dropped})
    assert request.members == members
    assert (request.surface, request.model, request.stream) == (Surface.RESPONSES, "m", True)
    assert (request.output_wanted, request.labels) == (
        99,
        {"user": "u", "metadata": {"a": "b"}},
    )


def test_null_is_taken_wherever_a_member_is_optional() -> None:
    names = RESPONSES.keys() - {"input"}
    assert parse({"input": "hello", **dict.fromkeys(names)}).members == {"input": "hello"}
    text = {"format": None, "verbosity": None}
    assert parse({"input": "hello", "text": text}).members["text"] == {}


def test_a_null_that_an_sdk_writes_is_absent_and_goes_no_further() -> None:
    null = {"type": None, "status": None, "namespace": None, "id": None}
    given = [
        {**HELLO[0], **null},
        {**CALL, "id": None, "caller": None},
        {**RESULT, "id": None, "namespace": None},
    ]
    tools = [{"type": "function", "name": "f", "parameters": {"a": None}, "async": None}]
    members = {"input": given, "tools": tools, "moderation": None}
    body = sent({**members, "prompt_cache_options": {"comparison_response_id": None}})
    assert body["input"] == [*HELLO, CALL, RESULT]
    assert body["tools"] == [{"type": "function", "name": "f", "parameters": {"a": None}}]
    assert "moderation" not in body
    assert body["prompt_cache_options"] == {}


@pytest.mark.parametrize(
    ("members", "pointer", "code"),
    [
        ({"store": True}, "/store", "stateless"),
        ({"previous_response_id": "resp_1"}, "/previous_response_id", "stateless"),
        ({"conversation": {"id": "c"}}, "/conversation", "stateless"),
        ({"background": True}, "/background", "stateless"),
        ({"prompt": {"id": "p"}}, "/prompt", "stateless"),
        ({"background_options": {"a": 1}}, "/background_options", "stateless"),
        ({"access_programs": {"cyber": "daybreak_red"}}, "/access_programs/cyber", "invalid"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "/input/0", "stateless"),
        ({"input": [*HELLO, {"id": "x"}]}, "/input/1", "stateless"),
        ({"input": [*HELLO, {"id": "x", "type": None}]}, "/input/1", "stateless"),
        *(
            ({"tools": [{"type": kind}]}, "/tools/0/type", "hosted_tool")
            for kind in (
                "web_search",
                "web_search_2025_08_26",
                "file_search",
                "code_interpreter",
                "image_generation",
                "mcp",
            )
        ),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, "/input/0/type", "invalid"),
        ({"input": []}, "/input", "invalid"),
        ({"input": [{"role": "user"}]}, "/input/0/content", "required"),
        ({"input": [{"role": "robot", "content": "x"}]}, "/input/0/role", "invalid"),
        ({"input": [{**CALL, "name": 1}]}, "/input/0/name", "invalid"),
        ({"max_output_tokens": 15}, "/max_output_tokens", "invalid"),
        ({"service_tier": "priority"}, "/service_tier", "invalid"),
        *(
            ({"tools": [{"type": kind}]}, "/tools/0/type", "unsupported")
            for kind in ("computer", "computer_use_preview")
        ),
        ({"tools": [{"type": "shell"}]}, "/tools/0/environment", "required"),
        (
            {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
            "/tools/0/environment/type",
            "invalid",
        ),
    ],
)
def test_a_refusal_has_its_pointer(members: Any, pointer: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse({"input": "hello", **members})
    first = refused.value.errors[0]
    assert (first.pointer, first.code) == (pointer, code)


def test_the_fault_of_a_body_that_is_faulty_all_over_is_soon_found() -> None:
    """The validator explains every fault of a list at once: this took minutes of the whole process."""
    parts: list[dict[str, Any]] = [{} for _ in range(90_000)]

    def refuse() -> None:
        with pytest.raises(InvalidRequest) as refused:
            parse({"input": [*HELLO, {"role": "user", "content": parts}]})
        assert [each.pointer for each in refused.value.errors] == ["/input/1/content"]

    assert takes_at_most(50, refuse)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": "https://images.test/a.png", "file_id": "file_1"},
        {"type": "input_image", "file_id": "file_1"},
        {"type": "input_file", "file_id": "file_1"},
        {"type": "input_file", "file_url": "https://files.test/a.pdf"},
    ],
)
def test_files_that_the_provider_stores_or_fetches_are_refused(part: dict[str, Any]) -> None:
    for item in ({"role": "user", "content": [part]}, {**RESULT, "output": [part]}):
        with pytest.raises(InvalidRequest) as refused:
            parse({"input": [item]})
        assert any("A file is sent whole" in each.detail for each in refused.value.errors)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"service_tier": "flex"}, "prices of their own"),
        ({"reasoning": {"mode": "pro"}}, "costs as much as several"),
        ({"tools": [{"type": "mcp"}]}, "runs at the provider, and hosted tools cost more"),
        ({"tools": [{"type": "computer"}]}, "A computer is not supported here."),
        (
            {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
            "A shell is local",
        ),
        ({"tool_choice": {"type": "web_search"}}, "tool that the caller runs"),
    ],
)
def test_a_refusal_says_its_reason(members: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse({"input": "hello", **members})
    assert why in refused.value.errors[0].detail


def test_a_file_goes_as_it_came_and_counts_like_those_of_chats() -> None:
    data = "data:application/pdf;base64," + "A" * 800_000
    part = {"type": "input_file", "file_data": data, "filename": "a.pdf"}
    given = [{"role": "user", "content": [part]}, CALL, {**RESULT, "output": [part]}]
    assert parse({"input": given}).unknown == ()
    assert sent({"input": given})["input"] == given
    of_files = estimate({"input": given}) - estimate({"input": [*HELLO, CALL, RESULT]})
    assert abs(of_files - files_tokens([{"file_data": data}] * 2)) < 10


def test_options_that_cost_tokens_alone_pass() -> None:
    given = {"image": {"context_compression": "enabled"}, "access_programs": {"cyber": "standard"}}
    body = sent({"input": "hello", "background_options": {}, **given})
    assert {name: body[name] for name in given} == given
    assert "background_options" not in body


def test_a_change_of_how_the_model_answers_passes_and_counts() -> None:
    schema = {"description": "word " * 50}
    form = {"type": "json_schema", "name": "x", "schema": schema}
    change = {
        "type": "configuration_update",
        "reasoning": {"effort": "low"},
        "text": {"format": form},
    }
    asked = {"input": [*HELLO, change]}
    assert parse(asked).unknown == ()
    assert sent(asked)["input"] == asked["input"]
    assert estimate(asked) >= 50


def test_options_of_the_cache_pass() -> None:
    options = {"mode": "explicit", "ttl": None}
    request = parse({"input": "hello", "prompt_cache_options": options})
    assert (request.unknown, request.members["prompt_cache_options"]) == ((), {"mode": "explicit"})


@pytest.mark.parametrize(
    "name",
    [
        "model", "temperature", "top_p", "top_logprobs", "prompt_cache_key", "prompt_cache_retention",
        "safety_identifier", "parallel_tool_calls", "user",
    ],
)  # fmt: skip
def test_a_member_that_chats_have_too_takes_the_same_values(name: str) -> None:
    theirs = CHAT["ChatRequest"]["properties"]
    assert RESPONSES[name] == theirs[name]


def test_a_member_that_is_not_of_the_dialect_is_refused_unless_all_pass() -> None:
    request = parse({"input": "hello", "top_k": 5})
    with pytest.raises(InvalidRequest):
        target().check(request)
    target()._replace(passes_all=True).check(request)


def test_reasoning_that_only_a_provider_with_state_could_read_is_left_out() -> None:
    bare = {"type": "reasoning", "id": "rs_2", "summary": []}
    assert sent({"input": [*HELLO, bare, THOUGHT, CALL, RESULT]})["input"] == [
        *HELLO,
        THOUGHT,
        CALL,
        RESULT,
    ]


def test_an_answer_goes_back_as_sdks_hold_it() -> None:
    direct = {"type": "direct"}
    call = {**CALL, "async": False, "caller": direct}
    result = {**RESULT, "name": "f", "caller": direct}
    refused = {"type": "refusal", "refusal": "no"}
    told = {"role": "assistant", "content": [refused]}
    given = [
        *HELLO,
        {**call, "parsed_arguments": {"a": 1}},
        result,
        {**told, "content": [{**refused, "parsed": None}]},
    ]
    assert parse({"input": given, "prompt": None}).unknown == ()
    assert sent({"input": given})["input"] == [*HELLO, call, result, told]


LOCAL = {"type": "local", "skills": [{"name": "s", "description": "word " * 50, "path": "/s"}]}
OF_OPENAI = [
    (
        {"type": "local_shell"},
        {"action": {"type": "exec", "command": ["ls", "word " * 50], "env": {}, "user": None}},
        {"output": "word " * 50},
    ),
    (
        {"type": "shell", "environment": LOCAL},
        {"action": {"commands": ["word " * 50]}, "environment": LOCAL},
        {"output": [{"stdout": "word " * 50, "stderr": "", "outcome": {"type": "timeout"}}]},
    ),
    (
        {"type": "apply_patch", "allowed_callers": ["direct"]},
        {"operation": {"type": "update_file", "path": "a", "diff": "word " * 50}},
        {"output": "word " * 50, "status": "failed"},
    ),
]


@pytest.mark.parametrize(("tool", "call", "result"), OF_OPENAI)
def test_tools_of_openais_that_the_caller_runs_pass_and_count(
    tool: dict[str, Any], call: dict[str, Any], result: dict[str, Any]
) -> None:
    kind = tool["type"]
    items = [
        *HELLO,
        {"type": f"{kind}_call", "id": "x_1", "call_id": "c1", "status": "completed", **call},
        {"type": f"{kind}_call_output", "call_id": "c1", **result},
    ]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": kind}]}
    asked = {"input": items, "tools": [tool], "tool_choice": choice}
    assert parse(asked).unknown == ()
    body = sent(asked)
    assert (body["input"], body["tools"], body["tool_choice"]) == (items, [tool], choice)
    assert estimate(asked) >= 700 + 100
    assert estimate({"input": items}) >= 100


def test_a_call_of_a_tool_of_openais_is_output() -> None:
    output = [
        {"type": "shell_call", "call_id": "c1", "action": {"commands": ["1234", "56"]}},
        {"type": "apply_patch_call", "operation": {"type": "a", "path": "1", "diff": "234"}},
    ]
    _, _, size = Responses().answer(dumps({"output": output}).encode(), target=target())
    assert size == 6 + 5


def test_the_words_of_a_tool_about_its_result_and_callers_pass_and_count() -> None:
    tool = {
        "type": "function",
        "name": "f",
        "parameters": {},
        "defer_loading": False,
        "allowed_callers": ["direct"],
    }
    asked = {"input": "hello", "tools": [tool], "reasoning": {"mode": "standard"}}
    plain = estimate(asked)
    tool["output_schema"] = {"description": "word " * 50}
    assert parse(asked).unknown == ()
    assert sent(asked)["tools"] == [tool]
    assert estimate(asked) >= plain + 50
    with pytest.raises(InvalidRequest):
        parse({**asked, "reasoning": {"mode": "pro"}})


def test_a_namespace_of_tools_passes_and_counts() -> None:
    function = {"type": "function", "name": "f", "description": "word " * 50}
    space = {"type": "namespace", "name": "n", "description": "", "tools": [function]}
    asked = {"input": "hello", "tools": [space], "client_metadata": {"a": "b"}}
    assert sent(asked)["tools"] == [space]
    assert "client_metadata" not in sent(asked)
    assert estimate(asked) >= 50
    space["tools"] = [{"type": "web_search"}]
    with pytest.raises(InvalidRequest):
        parse(asked)


FOUND = {"type": "function", "name": "f", "description": "word " * 50, "defer_loading": True}
SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "word " * 50,
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}
SPACE = {"type": "namespace", "name": "n", "description": "", "tools": [FOUND]}
# As Codex writes them for OpenAI's models since gpt-5.5 (openai/codex).
WITH_TOOLS = [
    {"type": "additional_tools", "role": "developer", "tools": [SPACE]},
    {"type": "additional_tools", "role": "developer", "tools": [SEARCH], "id": "at_1"},
    {"type": "tool_search_output", "call_id": "s1", "execution": "client", "status": "completed", "tools": [FOUND]},
    {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": [SPACE, FOUND]},
]  # fmt: skip


@pytest.mark.parametrize("item", WITH_TOOLS)
def test_tools_within_an_item_pass_and_count_as_tools(item: dict[str, Any]) -> None:
    asked = {"input": [item, *HELLO], "tool_choice": "auto", "parallel_tool_calls": False}
    request = parse(asked)
    assert request.unknown == ()
    body = sent(asked)
    assert body["input"] == [{name: each for name, each in item.items() if each}, *HELLO]
    # They are tools that a choice is among.
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("auto", False)
    assert "tools" not in body
    assert estimate(asked) >= estimate({"input": HELLO}) + 50
    # As much as where the caller lists them.
    listed = estimate({"input": HELLO, "tools": item["tools"]})
    assert abs(estimate(asked) - listed) < 10


@pytest.mark.parametrize("arguments", [{"query": "word " * 50}, dumps({"query": "word " * 50})])
def test_a_search_for_tools_that_the_caller_runs_passes_and_counts(arguments: Any) -> None:
    call = {
        "type": "tool_search_call",
        "call_id": "s1",
        "execution": "client",
        "arguments": arguments,
        "status": "completed",
    }
    asked = {"input": [*HELLO, call, WITH_TOOLS[2]], "tools": [SEARCH]}
    assert parse(asked).unknown == ()
    assert (sent(asked)["input"], sent(asked)["tools"]) == (asked["input"], [SEARCH])
    assert estimate({"input": [*HELLO, call]}) >= estimate({"input": HELLO}) + 50
    # A search that is not described is described by OpenAI.
    bare = {"type": "tool_search", "execution": "client"}
    assert estimate({"input": "hello", "tools": [bare]}) >= 700


@pytest.mark.parametrize("place", ["additional_tools", "tool_search_output"])
@pytest.mark.parametrize(
    ("tool", "code"),
    [
        ({"type": "web_search"}, "hosted_tool"),
        ({"type": "mcp", "server_label": "a", "server_url": "https://a.test"}, "hosted_tool"),
        ({"type": "tool_search"}, "hosted_tool"),
        ({"type": "tool_search", "execution": "server"}, "hosted_tool"),
        ({"type": "computer"}, "unsupported"),
    ],
)
def test_tools_that_the_provider_runs_are_refused_in_any_place(
    place: str, tool: dict[str, Any], code: str
) -> None:
    item = {"type": place, "role": "developer", "tools": [FOUND, tool]}
    within = {"type": "namespace", "name": "n", "tools": [tool]}
    for asked, pointer in (
        ({"input": [*HELLO, item]}, "/input/1/tools/1/type"),
        ({"input": [{**item, "tools": [within]}]}, "/input/0/tools/0/tools/0/type"),
        ({"input": "hello", "tools": [tool]}, "/tools/0/type"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            parse(asked)
        assert [(each.pointer, each.code) for each in refused.value.errors] == [(pointer, code)]


@pytest.mark.parametrize("odd", [[], {}, 5, [["x"]], "f"])
def test_items_of_tools_of_another_shape_are_refused_by_their_pointer(odd: Any) -> None:
    for item in (
        {"type": "additional_tools", "role": "developer", "tools": {"a": odd}},
        {"type": "tool_search_output", "tools": [[odd]]},
        {"type": ["additional_tools"], "tools": [odd]},
    ):
        with pytest.raises(InvalidRequest) as refused:
            parse({"input": [item]})
        assert refused.value.errors[0].pointer.startswith("/input/0")


def test_members_of_a_choice_of_tools_are_not_sent_without_tools() -> None:
    given = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
    assert sent({"input": "hello", **given}).keys() == {
        "input",
        "model",
        "max_output_tokens",
        "store",
    }


def test_images_that_the_provider_would_fetch_are_named() -> None:
    url = "https://images.test/a.png"
    part = {"type": "input_image", "image_url": url}
    output = {**RESULT, "output": [part]}
    request = parse({"input": [{"role": "user", "content": [part]}, CALL, output]})
    assert list(request.fetched_images()) == [
        ("/input/0/content/0/image_url", url),
        ("/input/2/output/0/image_url", url),
    ]
    assert [each["url"] for each in images_in(request.prompt)] == [url, url]


def test_the_whole_prompt_is_counted() -> None:
    plain = estimate({"input": "word " * 100})
    assert 100 <= plain <= 120
    more = estimate({"input": "word " * 100, "instructions": "word " * 50})
    assert plain + 50 <= more <= plain + 60
    tool = {"type": "custom", "name": "g", "description": "word " * 50}
    assert estimate({"input": "word " * 100, "tools": [tool]}) >= plain + 50
    items = [*HELLO, {**CALL, "arguments": "word " * 50}, {**RESULT, "output": "word " * 50}]
    assert estimate({"input": items}) >= 100
    # Encrypted reasoning counts by its length, and not as text.
    hidden = estimate({"input": [*HELLO, THOUGHT]}) - estimate({"input": HELLO})
    assert 100 <= hidden <= 120


def test_a_whole_answer_is_read_and_told() -> None:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "1234"}]},
        {**CALL, "arguments": "12345678"},
        {**SAID, "content": [{"type": "output_text", "text": "äh"}]},
    ]
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 16,
    }
    # The provider's cost of the call reaches no caller.
    given = {**usage, "cost": 0.1, "cost_details": {"upstream": 0.1}}
    body = dumps({"id": "r", "model": "theirs", "output": output, "usage": given}).encode()
    answer, known, size = Responses().answer(body, target=target())
    assert (known, size) == (TokenUsage(9, 7, 4, 3, 1), 4 + 9 + 3)
    told = Responses().completed(answer, called="ours", charged=None)
    assert (told["model"], told["usage"], told["output"]) == ("ours", usage, output)


def test_reasoning_beside_the_output_is_output() -> None:
    usage = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 110}
    body = dumps({"output": [], "usage": usage}).encode()
    answer, known, _ = Responses().answer(body, target=target())
    assert known == TokenUsage(9, 101)
    assert (answer["usage"]["output_tokens"], answer["usage"]["total_tokens"]) == (101, 110)


def test_an_answer_without_usage_gets_what_was_charged() -> None:
    answer, known, _ = Responses().answer(b'{"output": [], "usage": null}', target=target())
    assert known is None
    told = Responses().completed(answer, called=None, charged=TokenUsage(3, 4))
    assert told["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 7,
    }


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"{}", b'{"output": 1}', b'{"error": {"code": "server_error"}}']
)
def test_an_answer_that_is_none_is_a_failure(body: bytes) -> None:
    with pytest.raises(Problem):
        Responses().answer(body, target=target())


def test_members_of_an_answer_pass_but_for_costs_and_their_texts_count() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "iterations": 3, "cost": 0.1}
    tool = {"type": "function", "name": "f", "parameters": {"properties": {"price": {}}}}
    given = {
        "id": "r",
        "output": [{"type": "message", "words": "1234"}],
        "org": "o",
        "tools": [tool],
    }
    body = dumps({**given, "cost": 1, "nested": {"usage": usage}, "usage": usage}).encode()
    answer, known, size = Responses().answer(body, target=target())
    answer = Responses().completed(answer, called=None, charged=None)
    usage = answer.pop("usage")
    assert answer == {**given, "nested": {}}
    assert (usage["iterations"], "cost" in usage) == (3, False)
    assert (known, size) == (TokenUsage(1, 2), len("1234o"))
