"""Rewrites the unions of a schema, so that a fault is that of the alternative that was meant.

The validator reports of ``anyOf`` that no alternative fits, and explains each faulty value by all of them first. The
alternatives here differ in their JSON type, or in the ``type`` that an object names: such a union equals one
condition (``if``, ``then``) for each alternative.
"""

from itertools import chain
from typing import Any

Json = dict[str, Any]
KIND = "type"
_TYPES: dict[type, str] = {bool: "boolean", int: "integer", str: "string"}


def discriminated(schema: Any, components: Json) -> Any:
    """The same schema with conditions in place of unions."""
    if isinstance(schema, list):
        return [discriminated(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    written = {name: discriminated(each, components) for name, each in schema.items()}
    if alternatives := written.pop("anyOf", None):
        named = [components.get(_name(each), each) for each in schema["anyOf"]]
        types = [types_of(each, components) for each in named]
        kinds = [*map(kinds_of, named)]
        # The value is of one of these types and names one of these kinds, whichever alternative is meant.
        objects = {"if": {"type": "object"}, "then": _of([*chain(*kinds)])}
        written["allOf"] = [
            {"type": [*dict.fromkeys(chain(*types))]},
            objects,
            *(
                {"if": {"type": each, **_of(kind)}, "then": alternative}
                for each, kind, alternative in zip(types, kinds, alternatives, strict=True)
            ),
        ]
    return written


def kinds_of(schema: Json) -> list[Any]:
    """The values of ``type`` that an object of this schema has; None where it may do without."""
    kind = schema.get("properties", {}).get(KIND, {})
    kinds = [each["const"] for each in (kind, *kind.get("anyOf", ())) if "const" in each]
    kinds += kind.get("enum", ())
    return kinds if not kinds or KIND in schema.get("required", ()) else [*kinds, None]


def types_of(schema: Json, components: Json) -> list[str]:
    """The JSON types of the values of a schema."""
    schema = components.get(_name(schema), schema)
    if "anyOf" in schema:
        return [*dict.fromkeys(chain(*(types_of(each, components) for each in schema["anyOf"])))]
    types = _TYPES[type(schema["const"])] if "const" in schema else schema["type"]
    return types if isinstance(types, list) else [types]


def _of(kinds: list[Any]) -> Json:
    if not kinds:
        return {}
    required = [] if None in kinds else [KIND]
    return {"required": required, "properties": {KIND: {"enum": kinds}}}


def _name(schema: Json) -> str:
    name: str = schema.get("$ref", "").rpartition("/")[2]
    return name
