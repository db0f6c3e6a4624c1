"""Folds a union or a type beside null at the root of a tool's schema into an object, which some providers take alone.

Every input that the union takes fits the object; further rules of the union, as that one of two members has to be
there, are left to the tool itself.
"""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

UNIONS = ("anyOf", "oneOf", "allOf")
# Unions within unions, and all alternatives of one schema: references may lead in circles.
_DEPTH = 8
_MOST = 1_000
NOT_AN_OBJECT = "This model needs an object at the root of a tool's schema, and this union cannot be written as one."


class NoObject(ValueError):
    """A union whose alternatives are not all objects."""


def folded(schema: Schema) -> Schema:
    """The schema without a union or a null at its root. Raises ``NoObject`` for a union that is none of objects."""
    if any(schema.get(name) for name in UNIONS):
        return _object(schema, schema, _DEPTH, iter(range(_MOST)))
    return {**schema, "type": "object"} if "type" in schema and _is_of_objects(schema) else schema


def _object(schema: Schema, root: Schema, depth: int, left: Iterator[int]) -> Schema:
    """A schema as one of an object, whatever it refers to and unites."""
    if depth == 0 or next(left, None) is None:
        raise NoObject
    schema = _resolved(schema, root)
    if not isinstance(schema, dict) or not _is_of_objects(schema):
        raise NoObject
    whole: Schema = {name: each for name, each in schema.items() if name not in UNIONS}
    properties, required = _parts_of(whole)
    for name in UNIONS:
        alternatives = [
            _object(each, root, depth - 1, left) for each in _alternatives(schema, name)
        ]
        wanted = [_parts_of(each)[1] for each in alternatives]
        for each in alternatives:
            for member, form in _parts_of(each)[0].items():
                properties[member] = _either(properties.get(member), form)
        if name == "allOf":
            required |= {each for all_ in wanted for each in all_}
        elif wanted:
            required |= set.intersection(*wanted)
    whole |= {"type": "object", "properties": properties}
    if required:
        whole["required"] = sorted(required)
    return whole


def _is_of_objects(schema: Schema) -> bool:
    """Returns whether a type is object, null or absent: a tool without an input is called with an empty object."""
    kind = schema.get("type", "object")
    return all(
        each in ("object", "null", None) for each in (kind if isinstance(kind, list) else [kind])
    )


def _resolved(schema: Any, root: Schema) -> Any:
    """The schema that a reference within the same document leads to."""
    for _ in range(_DEPTH):
        if not isinstance(schema, dict) or not isinstance(at := schema.get("$ref"), str):
            return schema
        schema = root
        for part in at.removeprefix("#/").split("/"):
            schema = schema.get(part) if isinstance(schema, dict) else None
    raise NoObject


def _alternatives(schema: Schema, name: str) -> Iterator[Any]:
    given = schema.get(name) or ()
    if not isinstance(given, list | tuple):
        raise NoObject
    yield from (each for each in given if each != {"type": "null"})


def _parts_of(schema: Schema) -> tuple[Schema, set[str]]:
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise NoObject
    return dict(properties), {each for each in required if isinstance(each, str)}


def _either(known: Any, form: Any) -> Any:
    """A member's schema by two alternatives."""
    if known is None or known == form or form is True:
        return form if known is None else known
    if form == {}:
        return known
    union = known["anyOf"] if isinstance(known, dict) and [*known] == ["anyOf"] else [known]
    return {"anyOf": union if form in union else [*union, form]}
