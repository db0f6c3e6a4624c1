"""Writes the published schema as generators of clients read it, which know neither of these two short forms.

A constant alone has no type for them, and of a list of types they take the first: `{"const": 1}` becomes
`{"type": "integer", "const": 1}`, and a list of several types (beside null) an alternative for each. The same
values fit.
"""

from typing import Any

Described = dict[str, Any]
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
# What is said of values of one type alone, by that type.
KEYWORDS: dict[str, set[str]] = {
    "array": {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"},
    "object": {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
    "string": {"minLength", "maxLength", "pattern", "format"},
    "integer": _NUMBERS,
    "number": _NUMBERS,
}
_TYPES: dict[type, str] = {bool: "boolean", int: "integer", str: "string"}


def spell_out(result: Described, **_: Any) -> Described:
    """Postprocessing of the whole document, after all that adds to it."""
    spelt: Described = spelt_out(result)
    return spelt


def spelt_out(part: Any) -> Any:
    """A part of the document without the short forms."""
    if isinstance(part, list):
        return [spelt_out(each) for each in part]
    if not isinstance(part, dict):
        return part
    written = {name: spelt_out(each) for name, each in part.items()}
    constant, types = written.get("const"), written.get("type")
    if "type" not in written and type(constant) in _TYPES:
        return {"type": _TYPES[type(constant)], **written}
    if isinstance(types, list) and len({*types} - {"null"}) > 1:
        return _by_type(types, written)
    return written


def _by_type(types: list[str], schema: Described) -> Described:
    """An alternative for each type, with what is said of its values, and beside them what is said of all."""
    alternatives = [
        {"type": kind, **{word: schema[word] for word in schema if word in KEYWORDS.get(kind, ())}}
        for kind in types
    ]
    taken = {"type", *(word for each in alternatives for word in each)}
    return {"anyOf": alternatives, **{word: schema[word] for word in schema if word not in taken}}
