"""A value that fits a JSON schema.

All properties are filled, arrays get one item or `minItems`, the first member of `enum`, `anyOf`
and `oneOf` is taken, texts are the given one and then `value 2`, `value 3`, …, cut or padded to
their lengths. Local `$ref`s are followed; where a schema contains itself, optional parts are left
out once the value is deep or large.
`pattern`, `not`, `if` and `dependent…` are not looked at.
"""

import math
from typing import Any

from tests.standins.provider.failures import ApiError

SHALLOW = 6
DEEP = 40
MANY = 2_000
TOO_MANY = 20_000
LONG = 100_000
FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "time": "12:00:00Z",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def sample(schema: dict[str, Any], text: str, *, param: str) -> Any:
    """A value for `schema` whose first free text is `text`.

    Raises `ApiError` 400, naming `param` as the request's member at fault, if no value is found.
    """
    try:
        return _Sampler(schema, text).value(schema, 0)
    except _UnusableError as error:
        why = str(error)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        why = "a keyword in it has a value of the wrong type"
    raise ApiError(400, f"Invalid schema: {why}.", param=param, code="invalid_json_schema")


class _UnusableError(Exception):
    pass


class _Sampler:
    def __init__(self, root: dict[str, Any], text: str) -> None:
        self.root = root
        self.text = text
        self.texts = 0
        self.values = 0

    def value(self, schema: Any, depth: int) -> Any:
        self.values += 1
        if depth > DEEP or self.values > TOO_MANY:
            raise _UnusableError("it is too deep or too large, or must contain itself")
        schema = self._flat(schema, depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][0]
        return self._of_kind(_kind(schema), schema, depth)

    def _flat(self, schema: Any, depth: int) -> dict[str, Any]:
        """`schema` with its references and alternatives written into it."""
        if not isinstance(schema, dict):
            return {}
        flat = {name: value for name, value in schema.items() if name not in COMBINING}
        if depth > DEEP:
            raise _UnusableError("it must contain itself")
        inner = [self._target(schema["$ref"])] if "$ref" in schema else []
        inner += schema.get("allOf") or []
        inner += [schema[name][0] for name in ("anyOf", "oneOf") if schema.get(name)]
        for part in inner:
            other = self._flat(part, depth + 1)
            properties = {**other.get("properties", {}), **flat.get("properties", {})}
            needed = [*other.get("required", []), *flat.get("required", [])]
            flat = {**other, **flat}
            if properties:
                flat |= {"properties": properties, "required": needed}
        return flat

    def _target(self, reference: object) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise _UnusableError("only references inside the schema are followed")
        found: Any = self.root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise _UnusableError("a reference in it leads nowhere")
            found = found[name]
        return found

    def _of_kind(self, kind: object, schema: dict[str, Any], depth: int) -> Any:
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return _number(schema, whole=kind == "integer")
        if kind == "boolean":
            return True
        return None if kind == "null" else self._text(schema)

    def _sparing(self, depth: int) -> bool:
        return depth > SHALLOW or self.values > MANY

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        if self._sparing(depth):
            properties = {
                name: inner
                for name, inner in properties.items()
                if name in schema.get("required", [])
            }
        return {name: self.value(inner, depth + 1) for name, inner in properties.items()}

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        first = schema.get("prefixItems") or []
        least = schema.get("minItems", 0 if self._sparing(depth) else 1)
        length = min(max(least, len(first)), schema.get("maxItems", 1_000))
        rest = [schema.get("items", {})] * max(0, length - len(first))
        return [self.value(item, depth + 1) for item in [*first, *rest][:length]]

    def _text(self, schema: dict[str, Any]) -> str:
        if schema.get("format") in FORMATS:
            return FORMATS[schema["format"]]
        self.texts += 1
        text = self.text if self.texts == 1 else f"value {self.texts}"
        return text.ljust(min(schema.get("minLength", 0), LONG), ".")[: schema.get("maxLength")]


COMBINING = {"$ref", "allOf", "anyOf", "oneOf"}


def _kind(schema: dict[str, Any]) -> object:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((item for item in kind if item != "null"), "null")
    if kind is None:
        return next((kind for member, kind in TELLING.items() if member in schema), "string")
    return kind


TELLING = {"properties": "object", "items": "array", "prefixItems": "array", "minimum": "number"}


def _number(schema: dict[str, Any], *, whole: bool) -> float:
    step = schema.get("multipleOf") or (1 if whole else 0.5)
    least = schema.get("minimum", schema.get("exclusiveMinimum", -math.inf))
    most = schema.get("maximum", schema.get("exclusiveMaximum", math.inf))
    number = min(max(step, least), most)
    count = math.ceil(number / step) if number == least else math.floor(number / step)
    if count * step == schema.get("exclusiveMinimum"):
        count += 1
    if count * step == schema.get("exclusiveMaximum"):
        count -= 1
    return int(count * step) if whole else count * step
