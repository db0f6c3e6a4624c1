"""The forms of a schema that generators know, which take what the short forms take."""

from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from config.platform.api.spelling_out import spelt_out

VALUES = [
    *(None, True, False, 0, 1, 1.0, 1.5, -1, "", "a", "abc", "text", "1"),
    *([], [1], ["a"], ["a", "b", "c"], [[]], {}, {"a": 1}, {"type": "text"}, {"a": "b", "c": 1}),
]
FORMS: list[tuple[Any, Any]] = [
    ({"const": 1}, {"type": "integer", "const": 1}),
    ({"const": False}, {"type": "boolean", "const": False}),
    ({"const": "text"}, {"type": "string", "const": "text"}),
    ({"type": "string", "const": "text"}, {"type": "string", "const": "text"}),
    ({"type": ["string", "null"], "maxLength": 2}, {"type": ["string", "null"], "maxLength": 2}),
    (
        {"type": ["string", "array", "null"], "items": {"const": "a"}, "maxItems": 2},
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string", "const": "a"}, "maxItems": 2},
                {"type": "null"},
            ]
        },
    ),
    (
        {
            "type": ["array", "object"],
            "items": {},
            "maxItems": 0,
            "maxProperties": 0,
            "title": "No",
        },
        {
            "anyOf": [
                {"type": "array", "items": {}, "maxItems": 0},
                {"type": "object", "maxProperties": 0},
            ],
            "title": "No",
        },
    ),
    (
        {"type": ["integer", "number", "string"], "minimum": 1, "not": {"const": "a"}},
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "number", "minimum": 1},
                {"type": "string"},
            ],
            "not": {"type": "string", "const": "a"},
        },
    ),
    # Members that are named as words of a schema.
    (
        {"type": "object", "properties": {"type": {"const": "text"}, "const": {"type": "string"}}},
        {
            "type": "object",
            "properties": {
                "type": {"type": "string", "const": "text"},
                "const": {"type": "string"},
            },
        },
    ),
]


@pytest.mark.parametrize(("short", "long"), FORMS)
def test_a_form_that_generators_know_takes_the_same_values(short: Any, long: Any) -> None:
    assert spelt_out(short) == long
    before, after = (Draft202012Validator(each).is_valid for each in (short, long))
    assert [each for each in VALUES if before(each) != after(each)] == []


def test_spelt_out_forms_are_unchanged() -> None:
    for _, long in FORMS:
        assert spelt_out(long) == long
