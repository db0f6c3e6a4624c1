"""Unions of the published schemas, told apart so that a fault is that of one alternative."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from llmproxy.requests.call_request import Surface
from llmproxy.requests.checking import read_schemas
from llmproxy.requests.unions import discriminated, kinds_of, types_of

Json = dict[str, Any]
# Values that are of some alternatives, of several places, or of none.
VALUES: list[Any] = [
    *(None, True, False, 1, -1, "", "auto", "5m", "standard", [], [1], ["a"], [[1]], {}),
    *({"type": kind} for kind in ("text", "message", "input_text", "custom", "none", "zzz", None)),
    {"type": "text", "text": "a"},
    {"type": "text", "text": "a", "more": None},
    {"role": "user", "content": "a"},
    {"type": None, "role": "user", "content": [{"type": "input_text", "text": 1}]},
    {"type": "ephemeral", "ttl": "5m"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"name": "f", "input_schema": {}},
    {"type": "bash_20250124", "name": "bash"},
    [{"type": "text", "text": "a"}],
    [{"type": "input_text", "text": "a"}, {"type": "zzz"}],
]


def unions(surface: str) -> Iterator[tuple[Json, Json]]:
    components: Json = read_schemas(surface)["components"]

    def within(schema: Any) -> Iterator[Json]:
        if isinstance(schema, dict):
            if "anyOf" in schema:
                yield schema
            schema = [*schema.values()]
        for each in schema if isinstance(schema, list) else ():
            yield from within(each)

    yield from ((each, components) for each in within(components))


@pytest.mark.parametrize("surface", Surface)
def test_the_alternatives_of_a_union_differ_in_their_type_or_in_the_kind_they_name(
    surface: str,
) -> None:
    for union, components in unions(surface):
        named = [
            components.get(each.get("$ref", "").rpartition("/")[2], each) for each in union["anyOf"]
        ]
        for one, other in combinations(named, 2):
            if shared := {*types_of(one, components)} & {*types_of(other, components)}:
                assert shared == {"object"}
                assert kinds_of(one)
                assert kinds_of(other)
                assert not {*kinds_of(one)} & {*kinds_of(other)}


@pytest.mark.parametrize("surface", Surface)
def test_a_union_and_its_conditions_take_the_same_values(surface: str) -> None:
    for union, components in unions(surface):
        plain, told_apart = (
            Draft202012Validator({**schema, "components": {"schemas": named}})
            for schema, named in (
                (union, components),
                (discriminated(union, components), discriminated(components, components)),
            )
        )
        for value in VALUES:
            assert plain.is_valid(value) == told_apart.is_valid(value), (union, value)
