"""Checks the body of a model call by the JSON Schema that is published for it."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from jsonschema_rs import Draft202012Validator, ValidationError

from config.api.problems import MAX_FAULTS, Fault, InvalidRequest, pointer
from llmproxy.requests.large_bodies import one_fault, size_of
from llmproxy.requests.refused_members import refused_members

Json = dict[str, Any]
# The sentence of a fault, by its place; ``*`` is any index.
Refusals = Mapping[tuple[str, ...], str]

# Of a body with more values, one fault is told.
MAX_SEARCHED = 1_000
# A body with more values keeps its nulls.
MAX_MENDED = 10_000
NO_REFUSALS: Refusals = {}
# The member by which an object says which of several alternatives it is.
KIND = "type"


class RequestSchema:
    """The schema of one kind of call, with the components that it refers to.

    ``refusals`` say of members and values that are known why they are refused.
    """

    def __init__(self, schema: Json, components: Json, *, refusals: Refusals = NO_REFUSALS) -> None:
        self._schema, self._components = schema, components
        self._closed = _validator(schema, components)
        self._open = _validator(schema, opened(components))
        self._refusals = refusals
        named = schema.get("$ref", "").rpartition("/")[2]
        self._known = components.get(named, schema)["properties"]

    def check(self, data: Json, *, besides: Iterable[Fault] = ()) -> tuple[Fault, ...]:
        """Returns the faults that are no more than members which the schema does not know.

        Raises ``InvalidRequest`` with a pointer for each other fault, those ``besides`` the schema's among them, and
        ``MalformedRequest`` for too many values or members.
        """
        size, faults = size_of(data), [*besides]
        if not self._is_closed(data, size=size):
            found = list(islice(self._faults(data, size=size), MAX_FAULTS))
            refused = {each.pointer: each for each in refused_members(data, known=self._known)}
            if refused:
                others = (each for each in found if each.pointer not in refused)
                found, faults = [*others], [*refused.values(), *faults]
            # Faults of a closed schema that an open one does not find are unknown members.
            if not faults and self._open.is_valid(data):
                return tuple(found)
            faults = [*found, *faults]
        if faults:
            raise InvalidRequest(errors=faults[:MAX_FAULTS])
        return ()

    def _is_closed(self, data: Json, *, size: int) -> bool:
        """Whether a body is valid as it is, or without the unknown members that are null, which it loses here."""
        if self._closed.is_valid(data):
            return True
        if size > MAX_MENDED:
            return False
        _drop_nulls(self._schema, data, components=self._components)
        return self._closed.is_valid(data)

    def unlisted(self, data: Json) -> Iterator[Json]:
        """Yields the members that the schema does not know, of each object of a call without other faults."""
        return _unlisted(self._schema, data, components=self._components)

    def _faults(self, data: Json, *, size: int) -> Iterator[Fault]:
        if size > MAX_SEARCHED:
            yield one_fault(
                data,
                is_valid=self._closed.is_valid,
                explained=lambda: next(self._first_faults(data)),
            )
            return
        for error in self._closed.iter_errors(data):
            yield from self._faults_of(error)

    def _first_faults(self, data: Json) -> Iterator[Fault]:
        try:
            self._closed.validate(data)
        except ValidationError as error:
            yield from self._faults_of(error)

    def _faults_of(self, error: ValidationError) -> Iterator[Fault]:
        place = error.instance_path
        match error.kind.name:
            case "additionalProperties":
                for name in error.kind.as_dict()["unexpected"]:
                    yield Fault(pointer((*place, name)), "unknown", "This member is not supported.")
            case "required":
                name = error.kind.as_dict()["property"]
                yield Fault(pointer((*place, name)), "required", "This member is required.")
            case "anyOf" if meant := _meant(error):
                for each in meant:
                    yield from self._faults_of(each)
            case "const" if place and place[-1] == KIND:
                named = tuple("*" if isinstance(each, int) else each for each in place)
                detail = self._refusals.get(named) or "No kind of this name is supported here."
                yield Fault(pointer(place), "invalid", detail)
            case _:
                named = tuple("*" if isinstance(each, int) else each for each in place)
                detail = self._refusals.get(named) or f"{error.message}."
                yield Fault(pointer(place), "invalid", detail)


def opened(schema: Any) -> Any:
    """A schema whose objects take other members too."""
    if isinstance(schema, list):
        return [opened(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: opened(value)
        for name, value in schema.items()
        if name != "additionalProperties" or value is not False
    }


def _unlisted(schema: Json, value: Any, *, components: Json) -> Iterator[Json]:
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    if isinstance(value, dict) and _is_other_kind(schema, value):
        return
    for alternative in schema.get("anyOf", ()):
        yield from _unlisted(alternative, value, components=components)
    if isinstance(value, list):
        for each in value:
            yield from _unlisted(schema.get("items", {}), each, components=components)
    if isinstance(value, dict) and (known := schema.get("properties")):
        if others := {name: each for name, each in value.items() if name not in known}:
            yield others
        for name in known.keys() & value.keys():
            yield from _unlisted(known[name], value[name], components=components)


def _drop_nulls(schema: Json, value: Any, *, components: Json) -> None:
    """Takes the members out that are null and unknown: SDKs write them for what their callers have left out."""
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    if not isinstance(value, dict | list):
        return
    for alternative in schema.get("anyOf", ()):
        _drop_nulls(alternative, value, components=components)
    if isinstance(value, list):
        for each in value:
            _drop_nulls(schema.get("items", {}), each, components=components)
    if not isinstance(value, dict) or _is_other_kind(schema, value):
        return
    known = schema.get("properties", {})
    if schema.get("additionalProperties") is False:
        for name in [name for name, each in value.items() if each is None and name not in known]:
            del value[name]
    for name in known.keys() & value.keys():
        _drop_nulls(known[name], value[name], components=components)


def _is_other_kind(schema: Json, value: Json) -> bool:
    kind = schema.get("properties", {}).get(KIND, {})
    kinds = [each["const"] for each in (kind, *kind.get("anyOf", ())) if "const" in each]
    kinds += kind.get("enum", ())
    if (given := value.get(KIND)) is None:
        return bool(kinds) and KIND in schema.get("required", ())
    return bool(kinds) and given not in kinds


def _validator(schema: Json, components: Json) -> Draft202012Validator:
    # Faults repeat no value: it may be a prompt.
    return Draft202012Validator({**schema, "components": {"schemas": components}}, mask="The value")


def _meant(error: ValidationError) -> list[ValidationError] | None:
    """The faults by the one alternative of the value's JSON type, and of the kind that an object says it is.

    Where no alternative is of that kind, or an object says none, the fault of that member. None where several
    alternatives may be meant.
    """
    alternatives: list[list[ValidationError]] = error.kind.as_dict()["context"]
    place = error.instance_path
    typed = [each for each in alternatives if not _at(place, each, "type")]
    wrong = [_at([*place, KIND], each, "const", "enum", "anyOf") for each in typed]
    fitting = [each for each, faults in zip(typed, wrong, strict=True) if not faults]
    if not fitting:
        return wrong[0] if wrong else None
    missing = [[each for each in faults if _lacks_kind(each, place)] for faults in fitting]
    # An alternative may do without.
    unnamed = [each for each, lacks in zip(fitting, missing, strict=True) if not lacks]
    if len(unnamed) == 1:
        return unnamed[0]
    return missing[0] if not unnamed else None


def _at(
    place: list[str | int], faults: list[ValidationError], *kinds: str
) -> list[ValidationError]:
    return [each for each in faults if each.kind.name in kinds and each.instance_path == place]


def _lacks_kind(error: ValidationError, place: list[str | int]) -> bool:
    is_required = error.kind.name == "required" and error.instance_path == place
    return is_required and error.kind.as_dict()["property"] == KIND
