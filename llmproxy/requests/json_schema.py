"""Words of the JSON Schemas of model calls: an object of a request is closed, and an optional member may be null."""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
OPTIONAL_TEXT: Schema = {"type": ["string", "null"]}
FLAG: Schema = {"type": ["boolean", "null"]}
ID: Schema = {"type": "string", "maxLength": 256}
OPTIONAL_ID: Schema = {"type": ["string", "null"], "maxLength": 256}
# An open object says so: code generators take a bare `{"type": "object"}` for an empty one.
OPEN: Schema = {"type": "object", "additionalProperties": True}
ANY_LIST: Schema = {"type": ["array", "null"], "items": {}}
# Code generators do not take a member that is null alone.
NONE: Schema = {"type": ["string", "null"], "maxLength": 0}
MODEL: Schema = {"type": ["string", "null"], "minLength": 1, "maxLength": 120}
PROMPT_CACHE_KEY: Schema = {"type": ["string", "null"], "maxLength": 1_024}
SAFETY_IDENTIFIER: Schema = {"type": ["string", "null"], "maxLength": 512}


def closed(properties: Schema, *required: str) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def answer_of(properties: Schema, *required: str, says: str = "") -> Schema:
    """An object of an answer, to which providers may add members."""
    described = {"description": says} if says else {}
    return {"type": "object", **described, "properties": properties, "required": list(required)}


def ref(name: str) -> Schema:
    """Refers to a component of the published schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def any_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def or_null(*schemas: Schema) -> Schema:
    return any_of(*schemas, {"type": "null"})


def only(value: object) -> Schema:
    """One value, or null."""
    return or_null({"const": value})


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def number(low: float, high: float) -> Schema:
    return {"type": ["number", "null"], "minimum": low, "maximum": high}


def whole(low: int, high: int) -> Schema:
    return {"type": ["integer", "null"], "minimum": low, "maximum": high}


def list_of(item: Schema, *, least: int = 0, most: int = 10_000) -> Schema:
    return {"type": "array", "items": item, "minItems": least, "maxItems": most}
