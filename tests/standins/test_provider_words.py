"""The stand-in provider's counting of tokens and its values for JSON schemas."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.standins.provider.failures import ApiError
from tests.standins.provider.samples import sample
from tests.standins.provider.tokens import count, first_pieces, split


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("Hello, world", 3),
        ("naïve", 3),
        ("internationalisation", 3),
        ("  leading", 1),
        ("trailing \n", 2),
        ("日本語", 3),
        ("\n", 1),
    ],
)
def test_tokens_are_counted_as_the_docstring_says(text: str, tokens: int) -> None:
    assert count(text) == tokens


@given(st.text())
def test_pieces_are_the_text_and_none_is_empty(text: str) -> None:
    pieces = split(text)
    assert "".join(pieces) == text
    assert all(pieces)
    assert len(pieces) == count(text)
    assert first_pieces(text, 3) == pieces[:3]


OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        OBJECT,
        {"type": "string", "minLength": 30},
        {"type": "string", "maxLength": 2},
        {"type": ["null", "integer"], "exclusiveMinimum": 4},
        {"type": "integer", "minimum": 7, "multipleOf": 5},
        {"type": "integer", "exclusiveMaximum": 0},
        {"type": "number", "minimum": 0.25, "maximum": 0.25, "multipleOf": 0.25},
        {"type": "number", "maximum": -3.5},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": [3, "x"]},
        {"const": {"deep": [1]}},
        {"type": "array", "items": OBJECT, "minItems": 3, "uniqueItems": True},
        {"type": "array", "prefixItems": [{"type": "integer"}, OBJECT], "maxItems": 2},
        {"anyOf": [{"type": "null"}, OBJECT]},
        {"oneOf": [OBJECT]},
        {"allOf": [OBJECT, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]},
        {"properties": {"when": {"type": "string", "format": "date-time"}}},
        {
            "$ref": "#/$defs/tree",
            "$defs": {
                "tree": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                        "next": {"$ref": "#/$defs/tree"},
                    },
                    "required": ["name", "children"],
                }
            },
        },
    ],
)
def test_a_sample_fits_its_schema(schema: dict[str, Any]) -> None:
    value = sample(schema, "some text", param="tools")
    jsonschema_rs.validate(schema, value, validate_formats=True)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.com/schema"},
        {"$ref": "#"},
        {"$ref": "#/$defs/no"},
        {"properties": {"self": {"$ref": "#"}}, "required": ["self"]},
        {"type": "object", "properties": [1]},
        {"type": "string", "maxLength": "long"},
    ],
)
def test_a_schema_without_a_sample_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        sample(schema, "some text", param="tools")
    assert refused.value.status == 400
    assert refused.value.body["error"]["code"] == "invalid_json_schema"
