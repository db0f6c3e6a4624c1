"""The document at ``/v1/schema`` as programs read it: linters, documentation and generators of clients."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from jsonschema_rs import Draft202012Validator

from config.platform.api.spelling_out import spelt_out
from llmproxy.requests.call_request import Surface
from llmproxy.requests.checking import read_schemas

Described = dict[str, Any]
# Bytes, so that a component that is copied to every place is noticed.
MOST_BYTES = 275_000


@pytest.fixture(scope="module")
def body() -> bytes:
    return Client().get("/v1/schema", secure=True).content


@pytest.fixture(scope="module")
def document(body: bytes) -> Described:
    document: Described = json.loads(body)
    return document


@pytest.fixture(scope="module")
def operations(document: Described) -> dict[str, Described]:
    return {
        f"{method} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def schemas(part: Any, at: str = "") -> Iterator[tuple[str, Described]]:
    """Every object of the document, with its place; those that are schemas have a ``type``."""
    if isinstance(part, dict):
        yield at, part
        for name, each in part.items():
            yield from schemas(each, f"{at}/{name}")
    elif isinstance(part, list):
        for index, each in enumerate(part):
            yield from schemas(each, f"{at}/{index}")


def types(schema: Described) -> set[str]:
    kind = schema.get("type")
    return (
        {kind} if isinstance(kind, str) else {each for each in kind or () if isinstance(each, str)}
    )


def test_every_operation_has_a_short_summary_and_a_description(
    operations: dict[str, Described],
) -> None:
    for name, operation in operations.items():
        assert operation["description"], name
        assert 0 < len(operation["summary"]) <= 105, name
        assert not operation["summary"].endswith("."), name
        assert "\n" not in operation["summary"], name


def test_the_addresses_that_anthropics_sdks_ask_are_told(operations: dict[str, Described]) -> None:
    for name, path in {
        "llm_messages": "messages",
        "llm_messages_count_tokens": "messages/count_tokens",
    }.items():
        (operation,) = (each for each in operations.values() if each["operationId"] == name)
        assert f"`/v1/llm/v1/{path}`" in operation["description"]


def test_every_operation_has_a_name_and_one_tag_of_the_list(
    document: Described, operations: dict[str, Described]
) -> None:
    listed = {tag["name"] for tag in document["tags"]}
    assert all(tag["description"] for tag in document["tags"])
    assert {len(operation["tags"]) for operation in operations.values()} == {1}
    assert {operation["tags"][0] for operation in operations.values()} == listed
    names = [operation["operationId"] for operation in operations.values()]
    assert len(set(names)) == len(names)


def test_every_array_says_what_it_holds(document: Described) -> None:
    assert [
        at for at, each in schemas(document) if "array" in types(each) and "items" not in each
    ] == []


def test_every_object_without_members_is_open(document: Described) -> None:
    """Generators take a bare `object` for one without members."""
    bare = [
        at
        for at, each in schemas(document)
        if "object" in types(each) and not {"properties", "additionalProperties"} & each.keys()
    ]
    assert bare == []


def test_no_list_of_words_holds_booleans_or_null(document: Described) -> None:
    """Generators leave out what holds such a list."""
    lists = [(at, each["enum"]) for at, each in schemas(document) if "enum" in each]
    assert lists
    assert [at for at, words in lists if not all(type(word) in {str, int} for word in words)] == []


def test_no_member_is_null_alone(document: Described) -> None:
    """openapi-fetch takes such a member out of what it sends, and then refuses it."""
    members = [
        (f"{at}/{name}", types(member))
        for at, each in schemas(document)
        if "object" in types(each)
        for name, member in each.get("properties", {}).items()
    ]
    assert [at for at, kinds in members if kinds == {"null"}] == []


def test_every_constant_names_its_type(document: Described) -> None:
    """Generators make an unknown class of it otherwise."""
    constants = [(at, types(each)) for at, each in schemas(document) if "const" in each]
    assert constants
    assert [at for at, kinds in constants if len(kinds) != 1] == []


def test_no_list_of_types_has_two_beside_null(document: Described) -> None:
    """Generators take the first for all."""
    lists = [(at, each["type"]) for at, each in schemas(document) if "type" in each]
    named = [(at, {*kinds} - {"null"}) for at, kinds in lists if isinstance(kinds, list)]
    assert named
    assert [at for at, kinds in named if len(kinds) > 1] == []


def test_every_reference_leads_to_a_component_and_every_component_is_used(
    document: Described,
) -> None:
    named = {each["$ref"] for _, each in schemas(document) if isinstance(each.get("$ref"), str)}
    there = {
        f"#/components/{kind}/{name}"
        for kind, named in document["components"].items()
        for name in named
        if kind != "securitySchemes"
    }
    # Clients name the type of any problem.
    assert there - named == {"#/components/schemas/Problem"}
    assert named <= there


def test_every_operation_that_can_say_304_takes_and_gives_a_tag(
    operations: dict[str, Described],
) -> None:
    conditional = {name for name, each in operations.items() if "304" in each["responses"]}
    assert "get /v1/license/status" in conditional
    for name in conditional:
        answers = operations[name]["responses"]
        assert "ETag" in answers["200"]["headers"], name
        assert "ETag" in answers["304"]["headers"], name


def test_the_body_of_a_model_call_is_required(operations: dict[str, Described]) -> None:
    for path in ("complete", "stream", "chat/completions"):
        assert operations[f"post /v1/llm/{path}"]["requestBody"]["required"]
    assert "required" not in operations["post /v1/connections/{provider}/token"]["requestBody"]


def test_model_calls_are_checked_by_what_is_published(document: Described) -> None:
    published = document["components"]["schemas"]
    for surface in Surface:
        components = spelt_out(read_schemas(surface)["components"])
        assert {name: published[name] for name in components} == components
    shape = document["paths"]["/v1/llm/stream"]["post"]["requestBody"]["content"][
        "application/json"
    ]
    fits = Draft202012Validator({**shape["schema"], "components": document["components"]}).is_valid
    call = {"messages": [{"role": "user", "content": "hello"}]}
    assert fits({**call, "stream": True})
    assert fits({**call, "stream": None})
    assert not fits({**call, "stream": False})
    assert not fits({**call, "verbose": True})


def test_the_document_stays_small(body: bytes) -> None:
    assert len(body) < MOST_BYTES
    assert settings.VERSION.encode() in body
