"""Members that cost money outside tokens are refused on every surface, also with open provider members."""

from collections.abc import Callable
from typing import Any

import pytest

from config.platform.problems.problem import InvalidRequest
from llmproxy.requests import chat, embeddings, messages, responses
from llmproxy.requests.refused_members import REASONS

DEAR: dict[str, Any] = {
    "modalities": ["text", "image"],
    "context_management": {"edits": [{"type": "compact_20260112"}]},
}
HELLO = [{"role": "user", "content": "hello"}]
SURFACES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "chat": lambda more: chat.parse({"messages": HELLO, **more}, stream=None),
    "responses": lambda more: responses.parse({"input": "hello", **more}),
    "messages": lambda more: messages.parse(
        {"messages": HELLO, "max_tokens": 9, **more}, headers={}
    ),
    "count": lambda more: messages.parse_count({"messages": HELLO, **more}, headers={}),
    "embeddings": lambda more: embeddings.parse({"input": "hello", **more}),
}


@pytest.mark.parametrize("surface", SURFACES)
def test_a_cost_outside_tokens_is_refused_with_its_reason(surface: str) -> None:
    for name in REASONS:
        value = DEAR.get(name, {"type": "ephemeral", "ttl": "1h"})
        with pytest.raises(InvalidRequest) as refused:
            SURFACES[surface]({name: value})
        faults = refused.value.errors
        assert {fault.pointer.split("/")[1] for fault in faults} == {name}
        assert {fault.code for fault in faults} == {"invalid"}


@pytest.mark.parametrize(
    ("surface", "name"),
    [
        ("responses", "max_tokens"),
        ("responses", "max_completion_tokens"),
        ("chat", "max_output_tokens"),
        ("messages", "max_tokens_to_sample"),
    ],
)
def test_a_second_output_limit_is_refused(surface: str, name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        SURFACES[surface]({name: 99_999, "beside": 1})
    assert [(fault.pointer, fault.code) for fault in refused.value.errors] == [
        ("/beside", "unknown"),
        (f"/{name}", "invalid"),
    ]


@pytest.mark.parametrize("surface", SURFACES)
def test_a_value_that_changes_no_price_is_no_such_cost(surface: str) -> None:
    SURFACES[surface]({"modalities": ["text"], "n": 1, "plugins": None, "speed": "standard"})
