"""One fault of a large body: which, and how long it takes to find."""

from collections.abc import Callable
from typing import Any

import pytest

from config.platform.problems.problem import InvalidRequest
from llmproxy.requests import chat, embeddings, messages, responses
from tests.effort import takes_at_most

Json = dict[str, Any]
EMPTY: list[Json] = [{"a": 1}] * 10_000
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://pictures.example/a.png"}}
TEXT = {"type": "input_text", "text": "x"}
PARSE: dict[str, Callable[[Json], Any]] = {
    "ChatRequest": lambda body: chat.parse(body, stream=None),
    "MessagesRequest": lambda body: messages.parse(body, headers={}),
    "ResponsesRequest": responses.parse,
    "EmbeddingsRequest": embeddings.parse,
}
# Of the reference: half a second where that takes 20 ms. A whole second would be a worker that stands still.
MOST = 25


def said(*parts: Json) -> Json:
    return {
        "model": "m",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": [*parts]}],
    }


def document(content: list[Json]) -> Json:
    return said({"type": "document", "source": {"type": "content", "content": content}})


def result(content: list[Json]) -> Json:
    return said({"type": "tool_result", "tool_use_id": "t", "content": content})


def asked(**members: Any) -> Json:
    return {"model": "m", "input": "x", **members}


FAULTY = [
    ("MessagesRequest", document(EMPTY), "/messages/0/content/0/source/content/0/type"),
    (
        "MessagesRequest",
        {**said(), "context_management": {"edits": EMPTY}},
        "/context_management/edits",
    ),
    (
        "MessagesRequest",
        result([*[IMAGE] * 9_000, {"type": "image"}]),
        "/messages/0/content/0/content/9000/source",
    ),
    ("MessagesRequest", result([IMAGE] * 16_000), "/messages/0/content/0/content"),
    (
        "MessagesRequest",
        {
            **document(EMPTY),
            "tools": [
                {"name": "n", "input_schema": {f"k{each}": [1] * 2_000 for each in range(20)}}
            ],
        },
        "/messages/0/content/0/source/content/0/type",
    ),
    (
        "ResponsesRequest",
        asked(tool_choice={"type": "allowed_tools", "mode": "auto", "tools": EMPTY}),
        "/tool_choice/tools",
    ),
    (
        "ResponsesRequest",
        asked(tools=[{"type": "shell", "environment": {"type": "local", "skills": EMPTY}}]),
        "/tools/0/environment/skills",
    ),
    (
        "ResponsesRequest",
        asked(
            input=[
                {"type": "function_call_output", "call_id": "c", "output": [TEXT]},
                {
                    "type": "local_shell_call",
                    "call_id": "c",
                    "action": {"type": "exec", "command": EMPTY, "env": {}},
                },
            ]
        ),
        "/input/1/action/command/0",
    ),
    (
        "ResponsesRequest",
        asked(input=[{"role": "user", "content": [TEXT] * 30_000}]),
        "/input/0/content",
    ),
    ("EmbeddingsRequest", asked(input=[["a"]] * 40_000), "/input/0/0"),
    (
        "EmbeddingsRequest",
        asked(input=["a", [1] * 10, [*[1] * 40_000, -1, -1]]),
        "/input/2/40000",
    ),
    ("MessagesRequest", document(EMPTY * 4), "/messages/0/content/0/source/content"),
    ("ChatRequest", {"messages": EMPTY * 4}, "/messages"),
    (
        "ChatRequest",
        {"messages": [{"role": "user", "content": [{"type": "text"}] * 10_000}]},
        "/messages/0/content/0/text",
    ),
]


@pytest.mark.parametrize(("name", "body", "where"), FAULTY)
def test_one_fault_of_a_large_body_is_reported_soon(name: str, body: Json, where: str) -> None:
    """The validator took up to a millisecond for each value of a union, and refused whole bodies after seconds."""

    def refuse() -> None:
        with pytest.raises(InvalidRequest) as refused:
            PARSE[name](body)
        (fault,) = refused.value.errors
        assert fault.pointer == where

    assert takes_at_most(MOST, refuse)
