"""Members that no dialect knows: they are refused, whatever they hold, but for what a model has said."""

import json
from typing import Any

import pytest

from config.api.problems import InvalidRequest
from llmproxy.calls import admission
from llmproxy.requests import chat, messages, responses
from llmproxy.requests.call_request import CallRequest
from tests.llmproxy.targets import target

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
TOOL = {"type": "function", "function": {"name": "f"}}
ODD = {"type": "function", "function": {"name": ["a"]}}


def of_responses(item: dict[str, Any]) -> CallRequest:
    return responses.parse({"input": [item]})


@pytest.mark.parametrize("member", ["output", "content"])
def test_a_list_where_an_item_of_responses_has_none(member: str) -> None:
    with pytest.raises(InvalidRequest):
        admission.able_targets([target()], of_responses({**CALL, member: ["x"]}))


def test_what_a_model_has_said_goes_back_with_members_that_nobody_knows() -> None:
    said = {"role": "assistant", "content": "Hi", "trace": {"a": 1}, "tool_calls": None}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}, "odd": 2}
    turns = [
        {"role": "user", "content": "hi"},
        said,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    asked: CallRequest = chat.parse({"messages": turns}, stream=False)
    assert admission.able_targets([target()], asked)
    sent = sent_of(asked, "openai")["messages"]
    assert sent[1]["trace"] == {"a": 1}
    assert sent[2]["tool_calls"][0]["odd"] == 2
    assert asked.prompt["unlisted"] == [{"trace": {"a": 1}}, {"odd": 2}]
    # Another dialect has no place for them.
    assert "trace" not in str(sent_of(asked, "anthropic"))

    block = {"type": "text", "text": "Hi", "odd": 1}
    body = {"max_tokens": 5, "messages": [turns[0], {"role": "assistant", "content": [block]}]}
    asked = messages.parse(body, headers={})
    assert admission.able_targets([target("anthropic")], asked)
    assert sent_of(asked, "anthropic")["messages"][1]["content"] == [block]

    asked = responses.parse({"input": [{**CALL, "odd": 1}, {"role": "user", "content": "hi"}]})
    assert admission.able_targets([target()], asked)
    assert sent_of(asked, "openai")["input"][0]["odd"] == 1


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"top_k": 5}, "/top_k"),
        ({"messages": [{"role": "user", "content": "hi", "odd": 1}]}, "/messages/0/odd"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "video"}], "odd": 1}]},
            "/messages/0/content/0/type",
        ),
    ],
)
def test_no_other_unknown_member_passes_beside_them(change: dict[str, Any], pointer: str) -> None:
    said = {"role": "assistant", "content": "Hi", "odd": 1}
    body = {"messages": [{"role": "user", "content": "hi"}, said], **change}
    with pytest.raises(InvalidRequest) as refused:
        admission.able_targets([target()], chat.parse(body, stream=False))
    assert pointer in [each.pointer for each in refused.value.errors]


def test_a_cache_that_a_model_has_not_said_stays_closed() -> None:
    cached = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "scope": "a"}}
    body = {"max_tokens": 5, "messages": [{"role": "assistant", "content": [cached]}]}
    with pytest.raises(InvalidRequest):
        admission.able_targets([target("anthropic")], messages.parse(body, headers={}))


def sent_of(asked: CallRequest, dialect: str) -> dict[str, Any]:
    where = target(dialect)
    outgoing = where.codec(asked.surface).outgoing(asked, target=where, output_limit=9)
    body: dict[str, Any] = json.loads(outgoing.body)
    return body


def test_an_address_of_another_shape_in_a_text() -> None:
    part = {"type": "input_text", "text": "hi", "image_url": {"url": "x"}}
    with pytest.raises(InvalidRequest):
        admission.able_targets([target()], of_responses({"role": "user", "content": [part]}))
    block = {"type": "text", "text": "x", "source": {}}
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": [block]}]}
    with pytest.raises(InvalidRequest):
        admission.able_targets([target("anthropic")], messages.parse(body, headers={}))


def test_a_name_of_an_allowed_tool_that_is_none() -> None:
    allowed = {"mode": "auto", "tools": [ODD]}
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [TOOL],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed},
    }
    asked = chat.parse(body, stream=False)
    assert admission.able_targets([target("anthropic")], asked)
