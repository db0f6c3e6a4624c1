"""Members that no dialect knows, in places where others are read: they are refused, whatever they hold."""

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
