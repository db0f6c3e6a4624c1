"""Expands two short forms of the published schema that client generators misread.

Generators find no type in a constant alone, and take the first of a list of types: `{"const": 1}` becomes
`{"type": "integer", "const": 1}`, and a list of several types (besides null) becomes one alternative for each. Both
forms accept the same values.
"""

from typing import Any

Described = dict[str, Any]
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
# Keywords that apply to values of one type only, by type.
KEYWORDS: dict[str, set[str]] = {
    "array": {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"},
    "object": {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
    "string": {"minLength", "maxLength", "pattern", "format"},
    "integer": _NUMBERS,
    "number": _NUMBERS,
}
_TYPES: dict[type, str] = {bool: "boolean", int: "integer", str: "string"}


def spell_out(result: Described, **_: Any) -> Described:
    """Expands the whole document, as the last postprocessing hook."""
    spelt: Described = spelt_out(result)
    return spelt


def spelt_out(part: Any) -> Any:
    """Returns a part of the document without the short forms."""
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
    """Returns one alternative for each type with the keywords of that type, beside the keywords of all types."""
    alternatives = [
        {"type": kind, **{key: schema[key] for key in schema if key in KEYWORDS.get(kind, ())}}
        for kind in types
    ]
    used = {"type", *(key for each in alternatives for key in each)}
    return {"anyOf": alternatives, **{key: schema[key] for key in schema if key not in used}}
