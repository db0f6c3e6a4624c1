"""Checks the body of a model call by the JSON Schema that is published for it: ``schemas/<surface>.json``."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from json import loads
from pathlib import Path
from typing import Any

from jsonschema_rs import Draft202012Validator, ValidationError

from config.platform.problems.problem import (
    MAX_FAULTS,
    Fault,
    InvalidRequest,
    MalformedRequest,
    pointer,
)
from llmproxy.requests.refused_members import Place, refused_members, refused_within
from llmproxy.requests.unions import KIND, discriminated, kinds_of

Json = dict[str, Any]
_KIND_WITHIN = re.compile(r"\[[^]]*\]/")
# The sentence of a fault, by its pointer; ``*`` is any index.
Refusals = Mapping[str, str]
UNKNOWN = "This member is not supported."

# The validator copies each faulty value and lists every unknown member, so the number of both is limited.
MAX_VALUES = 100_000
MAX_MEMBERS = 5_000
# The first fault alone is reported of a body with more values.
MAX_SEARCHED = 1_000
# A body with more values keeps its nulls.
MAX_MENDED = 10_000
# Values of known words are no longer.
LONGEST_WORD = 100
NO_REFUSALS: Refusals = {}
# Not refused, but counted with the prompt.
GIVEN_BACK = "given_back"
_FOLDER = Path(__file__).with_name("schemas")
REFUSED = _FOLDER / "refused.json"


class RequestSchema:
    """The schema of one kind of call, with the components that it refers to.

    ``refusals`` give the reasons for known members and values that are refused, ``reasons`` those for what the schema
    has no place for, by the places of ``refused_places``.
    """

    def __init__(
        self,
        schema: Json,
        components: Json,
        *,
        refusals: Refusals = NO_REFUSALS,
        reasons: Refusals = NO_REFUSALS,
    ) -> None:
        self._schema, self._components, self._refusals = schema, components, refusals
        # A kind stands at the end of a place, where it is what is refused, and else does not matter.
        self._reasons = {_KIND_WITHIN.sub("/", at): why for at, why in reasons.items()}
        self._closed = _validator(schema, components)
        self._open = _validator(schema, opened(components))
        self._explaining = _validator(
            discriminated(schema, components), discriminated(components, components)
        )
        # Names that are read in one place are unknown in none.
        self._names = {*_names_in(schema), *_names_in(components)}
        named = schema.get("$ref", "").rpartition("/")[2]
        self.known: Json = components.get(named, schema)["properties"]

    @classmethod
    def read(cls, surface: str, component: str) -> "RequestSchema":
        """The schema of a component of a surface."""
        document = read_schemas(surface)
        schema = {"$ref": f"#/components/schemas/{component}"}
        return cls(
            schema,
            document["components"],
            refusals=document.get("refusals", NO_REFUSALS),
            reasons=refused_places(surface),
        )

    def check(self, data: Json, *, besides: Iterable[Fault] = ()) -> tuple[Fault, ...]:
        """Returns the faults that are no more than members which the schema does not know.

        Those of code ``GIVEN_BACK`` alone pass at every provider.

        Raises ``InvalidRequest`` with a pointer for each other fault, those ``besides`` the schema's among them, and
        ``MalformedRequest`` for too many values or members.
        """
        size, faults = size_of(data), [*besides]
        if not self._is_closed(data, size=size):
            if not faults and (given_back := self._given_back(data, size=size)):
                return given_back
            found = list(islice(self._faults(data, size=size), MAX_FAULTS))
            refused = {each.pointer: each for each in refused_members(data, known=self.known)}
            if refused:
                others = (each for each in found if each.pointer not in refused)
                found, faults = [*others], [*refused.values(), *faults]
            # Faults of a closed schema that an open one does not find are unknown members.
            if found and not faults and self._open.is_valid(data):
                return tuple(found)
            faults = [*found, *faults]
        if faults:
            raise InvalidRequest(errors=faults[:MAX_FAULTS])
        return ()

    def unlisted(self, data: Json) -> Iterator[tuple[Place, Json]]:
        """Yields the members that the schema does not know, of each object of a call without other faults."""
        for place, schema, members in _objects(self._schema, data, components=self._components):
            if others := {
                name: each for name, each in members.items() if name not in schema["properties"]
            }:
                yield place, others

    def beyond(self, data: Json, *, named: Collection[str] | None) -> Iterator[Fault]:
        """Yields the faults of members that the schema does not know, at a provider that gets those ``named``, or all.

        They are not named, or known to cost, repeat, fetch or run, at any depth. What a model has said goes back.
        """
        place = "messages" if "messages" in self.known else "input"
        for at, schema, members in _objects(self._schema, data, components=self._components):
            is_said = at[:1] == (place,) and len(at) > 1 and is_answer(data[place][at[1]])
            for name in members.keys() - schema["properties"].keys():
                if is_said and name not in self._names and "ttl" not in schema["properties"]:
                    continue
                if named is None or name in named:
                    yield from refused_within((*at, name), members[name])
                else:
                    yield Fault(pointer((*at, name)), "unknown", UNKNOWN)

    def _is_closed(self, data: Json, *, size: int) -> bool:
        """Returns whether a body is valid as it is, or without the unknown members that are null, which it loses here.

        SDKs write such nulls for what their callers have left out.
        """
        if self._closed.is_valid(data):
            return True
        if size > MAX_MENDED:
            return False
        for _, schema, members in _objects(self._schema, data, components=self._components):
            if schema.get("additionalProperties") is False:
                unknown = members.keys() - schema["properties"].keys()
                for name in [each for each in unknown if members[each] is None]:
                    del members[name]
        return self._closed.is_valid(data)

    def _given_back(self, data: Json, *, size: int) -> tuple[Fault, ...]:
        """The unknown members of what a model has said, of a body that is closed without them.

        An answer's members reach callers, whose SDKs give all of them back.
        """
        place = "messages" if "messages" in self.known else "input"
        turns = data.get(place)
        if size > MAX_MENDED or not isinstance(turns, list):
            return ()
        turns = [deepcopy(each) if is_answer(each) else each for each in turns]
        said, found = list(filter(is_answer, turns)), []
        for _, schema, members in _objects(self.known[place], said, components=self._components):
            # A cache has prices.
            if schema.get("additionalProperties") is False and "ttl" not in schema["properties"]:
                for name in members.keys() - self._names:
                    del members[name]
                    found.append(Fault(pointer((place, name)), GIVEN_BACK, ""))
        return tuple(found) if self._closed.is_valid({**data, place: turns}) else ()

    def _faults(self, data: Json, *, size: int) -> Iterator[Fault]:
        if size <= MAX_SEARCHED:
            for error in self._explaining.iter_errors(data):
                yield from self._faults_of(error, data)
            return
        try:
            self._explaining.validate(data)
        except ValidationError as error:
            yield from self._faults_of(error, data)

    def _faults_of(self, error: ValidationError, data: Json) -> Iterator[Fault]:
        place, kind = error.instance_path, error.kind
        match kind.name:
            case "additionalProperties":
                for name in kind.as_dict()["unexpected"]:
                    why = self._reasons.get(_starred((*place, name)))
                    yield Fault(pointer((*place, name)), "unknown", why or UNKNOWN)
            case "required":
                name = kind.as_dict()["property"]
                yield Fault(pointer((*place, name)), "required", "This member is required.")
            case _:
                why = self._refusals.get(_starred(place)) or self._reason(place, data)
                yield Fault(pointer(place), "invalid", why or f"{error.message}.")

    def _reason(self, place: Sequence[str | int], data: Json) -> str | None:
        """Returns the reason for refusing a known kind or value."""
        value: Any = data
        for part in place:
            try:
                value = value[part]
            except (LookupError, TypeError):
                # The place is a name that is refused.
                return None
        if place and place[-1] == KIND and isinstance(value, str):
            return self._reasons.get(f"{_starred(place[:-1])}[{value}]")
        is_word = isinstance(value, str) and len(value) <= LONGEST_WORD
        return self._reasons.get(f"{_starred(place)}={value}") if is_word else None


def is_answer(turn: Any) -> bool:
    """Returns whether a message or item is one that a model has written."""
    if not isinstance(turn, dict):
        return False
    kind = str(turn.get("type"))
    return turn.get("role") == "assistant" or kind == "reasoning" or kind.endswith("_call")


def read_schemas(surface: str) -> Json:
    """The ``components`` of a surface, and the sentences of its ``refusals``."""
    document: Json = loads((_FOLDER / f"{surface}.json").read_text(encoding="utf-8"))
    return document


def refused_places(surface: str) -> Refusals:
    """Reasons for refusing what SDKs know, by place: ``*`` is any index, ``[kind]`` a kind, ``=value`` a value."""
    document = loads(REFUSED.read_text(encoding="utf-8"))
    reasons = document["reasons"]
    return {place: reasons[why] for place, why in document.get(surface, {}).items()}


def _starred(place: Iterable[str | int]) -> str:
    return pointer("*" if isinstance(each, int) else each for each in place)


def size_of(value: Any) -> int:
    """The number of values in a body. Raises ``MalformedRequest`` for too many."""
    size = 0
    level: list[Any] = [value]
    while level:
        lengths = list(map(len, level))
        size += sum(lengths)
        if size > MAX_VALUES:
            raise MalformedRequest(f"A call can have at most {MAX_VALUES:,} values.")
        if any(
            length > MAX_MEMBERS and isinstance(each, dict)
            for each, length in zip(level, lengths, strict=True)
        ):
            raise MalformedRequest(f"An object in a call can have at most {MAX_MEMBERS:,} members.")
        within = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for each in within for value in each if isinstance(value, dict | list)]
    return size


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


def _names_in(schema: Any) -> Iterator[str]:
    """The names of all members in a schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
    for each in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(each, dict | list):
            yield from _names_in(each)


def _objects(
    schema: Json, value: Any, *, components: Json, place: Place = ()
) -> Iterator[tuple[Place, Json, Json]]:
    """Yields the place of each object in a value whose members a schema names, with this schema and the object."""
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    for alternative in schema.get("anyOf", ()):
        yield from _objects(alternative, value, components=components, place=place)
    if isinstance(value, list):
        items = schema.get("items", {})
        for index, each in enumerate(value):
            yield from _objects(items, each, components=components, place=(*place, index))
    elif isinstance(value, dict) and (known := schema.get("properties")):
        kinds = kinds_of(schema)
        if kinds and value.get("type") not in kinds:
            return
        yield place, schema, value
        for name in known.keys() & value.keys():
            within = *place, name
            yield from _objects(known[name], value[name], components=components, place=within)


def _validator(schema: Json, components: Json) -> Draft202012Validator:
    # Faults repeat no value: it may be a prompt.
    return Draft202012Validator({**schema, "components": {"schemas": components}}, mask="The value")
