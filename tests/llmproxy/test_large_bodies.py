"""One fault of a large body: which, and how much of the body is explained to find it."""

from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator, ValidationError

from config.api.problems import Fault, InvalidRequest, pointer
from llmproxy.requests import (
    chat,
    chat_schema,
    embeddings,
    messages,
    messages_schema,
    responses,
    responses_schema,
)
from llmproxy.requests.large_bodies import one_fault, size_of

Json = dict[str, Any]
EMPTY: list[Json] = [{"a": 1}] * 40_000
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://pictures.example/a.png"}}
TEXT = {"type": "input_text", "text": "x"}
COMPONENTS: dict[str, Json] = {
    "ChatRequest": chat_schema.COMPONENTS,
    "MessagesRequest": messages_schema.COMPONENTS,
    "ResponsesRequest": responses_schema.COMPONENTS,
    "EmbeddingsRequest": embeddings.COMPONENTS,
}


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
        "/context_management/edits/0/type",
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
            **document(EMPTY[:20_000]),
            "tools": [
                {"name": "n", "input_schema": {f"k{each}": [1] * 2_000 for each in range(20)}}
            ],
        },
        "/messages/0/content/0/source/content/0/type",
    ),
    (
        "ResponsesRequest",
        asked(tool_choice={"type": "allowed_tools", "mode": "auto", "tools": EMPTY}),
        "/tool_choice/tools/0/type",
    ),
    (
        "ResponsesRequest",
        asked(tools=[{"type": "shell", "environment": {"type": "local", "skills": EMPTY}}]),
        "/tools/0/environment/skills/0/name",
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
    (
        "ChatRequest",
        {"messages": [{"role": "user", "content": [{"type": "text"}] * 40_000}]},
        "/messages/0/content/0/text",
    ),
]


@pytest.mark.parametrize(("name", "body", "where"), FAULTY)
def test_one_fault_of_a_large_body_is_told(name: str, body: Json, where: str) -> None:
    parse = {
        "ChatRequest": lambda: chat.parse(body, stream=None),
        "MessagesRequest": lambda: messages.parse(body, headers={}),
        "ResponsesRequest": lambda: responses.parse(body),
        "EmbeddingsRequest": lambda: embeddings.parse(body),
    }
    with pytest.raises(InvalidRequest) as refused:
        parse[name]()
    (fault,) = refused.value.errors
    assert fault.pointer == where


@pytest.mark.parametrize(("name", "body", "where"), FAULTY)
def test_little_of_a_large_body_is_explained_wherever_its_lists_are(
    name: str, body: Json, where: str
) -> None:
    """The validator took up to a millisecond for each value of a list, and refused whole bodies after seconds."""
    checked, explained = [0], [0]
    schema = {
        "$ref": f"#/components/schemas/{name}",
        "components": {"schemas": COMPONENTS[name]},
    }
    validator = Draft202012Validator(schema)
    whole, size = repr(body), size_of(body)

    def is_valid(data: Json) -> bool:
        checked[0] += size_of(data)
        return validator.is_valid(data)

    def first() -> Fault:
        explained[0] = size_of(body)
        with pytest.raises(ValidationError) as caught:
            validator.validate(body)
        return Fault(pointer(caught.value.instance_path), "invalid", "")

    one_fault(body, is_valid=is_valid, explained=first)
    assert explained[0] < 100
    assert checked[0] < 100 * size
    assert repr(body) == whole


def test_a_list_is_faulty_by_its_values_or_its_length_alone() -> None:
    """A large list that is faulty though its halves are not is told to be too long."""

    def keywords(schema: Any) -> list[tuple[str, Any]]:
        if isinstance(schema, list):
            return [found for each in schema for found in keywords(each)]
        if not isinstance(schema, dict):
            return []
        return [*schema.items(), *(found for each in schema.values() for found in keywords(each))]

    found = keywords([*COMPONENTS.values()])
    assert {value for name, value in found if name == "minItems"} <= {0, 1}
    others = {"uniqueItems", "contains", "prefixItems", "unevaluatedItems"}
    assert not others & {name for name, _ in found}
