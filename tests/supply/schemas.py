"""Compares the request types of the locked SDKs with what is taken and refused here: ``make schemas``.

A member, item, block, tool, value or beta that an SDK knows either passes the schema of its surface, or has a line in
``llmproxy/requests/schemas/refused.json`` that says why not.
"""

import sys
import types
from collections.abc import Iterator, Sequence
from inspect import isclass
from typing import (
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.anthropic_beta_param import AnthropicBetaParam
from anthropic.types.beta import message_count_tokens_params as beta_count_params
from anthropic.types.beta import message_create_params as beta_params
from openai.types import embedding_create_params
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params
from pydantic import BaseModel
from typing_extensions import is_typeddict

from llmproxy.requests.checking import REFUSED, read_schemas, refused_places
from llmproxy.requests.messages import BETAS
from llmproxy.requests.unions import kinds_of

Json = dict[str, Any]

# The types of a request, and the component of the surface that takes it.
Requests = Sequence[tuple[Any, str]]
REQUESTS: dict[str, Requests] = {
    "chat": [
        (completion_create_params.CompletionCreateParamsNonStreaming, "ChatRequest"),
        (completion_create_params.CompletionCreateParamsStreaming, "ChatRequest"),
    ],
    "responses": [
        (response_create_params.ResponseCreateParamsNonStreaming, "ResponsesRequest"),
        (response_create_params.ResponseCreateParamsStreaming, "ResponsesRequest"),
    ],
    "embeddings": [(embedding_create_params.EmbeddingCreateParams, "EmbeddingsRequest")],
    "messages": [
        (message_create_params.MessageCreateParamsNonStreaming, "MessagesRequest"),
        (message_create_params.MessageCreateParamsStreaming, "MessagesRequest"),
        (beta_params.MessageCreateParamsNonStreaming, "MessagesRequest"),
        (beta_params.MessageCreateParamsStreaming, "MessagesRequest"),
        (message_count_tokens_params.MessageCountTokensParams, "MessagesCountRequest"),
        (beta_count_params.MessageCountTokensParams, "MessagesCountRequest"),
    ],
}


class Seen(NamedTuple):
    """A type of an SDK at a place of a request, and the schemas of what is taken there, without references."""

    place: str
    kind: Any
    schemas: list[Json]


def not_taken(surface: str, *, requests: Requests | None = None) -> list[str]:
    """The places of what the SDKs know and the surface does not take, each once: ``/tools/*[web_search]``."""
    components = read_schemas(surface)["components"]
    found: dict[str, None] = {}
    visited: set[Any] = set()
    for kind, component in requests or REQUESTS[surface]:
        waiting = [Seen("", kind, [components[component]])]
        while waiting:
            seen = waiting.pop(0)
            schemas = [
                each for schema in seen.schemas for each in _alternatives(schema, components)
            ]
            key = frozenset(_parts(seen.kind)), frozenset(map(id, schemas))
            if key not in visited:
                visited.add(key)
                missing, within = _compare(seen._replace(schemas=schemas))
                found |= dict.fromkeys(missing)
                waiting += within
    return [*found]


def betas_left_out() -> list[str]:
    """The betas of Anthropic's SDK that do not go on to a provider."""
    literals = [each for each in _parts(AnthropicBetaParam) if get_origin(each) is Literal]
    return [name for each in literals for name in get_args(each) if name not in BETAS]


def unclassified() -> list[str]:
    """Returns members with neither a place in a schema nor a reason, and reasons about nothing."""
    listed = {surface: not_taken(surface) for surface in REQUESTS} | {"betas": betas_left_out()}
    told: list[str] = []
    for surface, places in listed.items():
        known = refused_places(surface)
        told += [f"{surface} {each}: new" for each in places if each not in known]
        told += [
            f"{surface} {each}: no SDK knows it, or it passes"
            for each in known
            if each not in places
        ]
    return told


def main() -> int:
    """Prints what is not classified; 1 where there is something."""
    if told := unclassified():
        print(*told, sep="\n")
        print(
            f"Each passes by its schema, or has a line in {REFUSED.name}: what costs tokens alone passes."
        )
        return 1
    print("All that the locked SDKs may send is classified.")
    return 0


def _compare(seen: Seen) -> tuple[list[str], list[Seen]]:
    """Returns the missing parts of a type, and its parts to be compared."""
    schemas = seen.schemas
    missing: list[str] = []
    within: list[Seen] = []
    for kind in _parts(seen.kind):
        if is_typeddict(kind) or (isclass(kind) and issubclass(kind, BaseModel)):
            less, more = _object(seen.place, kind, schemas)
            missing += less
            within += more
        elif get_origin(kind) is Literal:
            missing += [
                f"{seen.place}={value}" for value in get_args(kind) if not _takes(value, schemas)
            ]
        elif items := _items(kind):
            lists = [each["items"] for each in schemas if "items" in each]
            if lists and {} not in lists:
                within.append(Seen(f"{seen.place}/*", items, lists))
    return missing, within


def _object(place: str, kind: Any, schemas: list[Json]) -> tuple[list[str], list[Seen]]:
    members = _members(kind)
    objects = [each for each in schemas if _may_be(each, "object")]
    if names := _names_of_kind(members):
        fitting = {name: [each for each in objects if _is_of(each, name)] for name in names}
        missing = [f"{place}[{name}]" for name, found in fitting.items() if not found]
        objects = [each for found in fitting.values() for each in found]
        place = f"{place}[{names[0]}]" if len(schemas) > 1 else place
    else:
        missing = [] if objects else [f"{place}{{}}"]
    if not objects or any(each.get("additionalProperties") is True for each in objects):
        return missing, []
    within = []
    for name, type_ in members.items():
        known = [each["properties"][name] for each in objects if name in each.get("properties", {})]
        if not known:
            missing.append(f"{place}/{name}")
        elif {} not in known:
            within.append(Seen(f"{place}/{name}", type_, known))
    return missing, within


def _members(kind: Any) -> dict[str, Any]:
    if is_typeddict(kind):
        return get_type_hints(kind, include_extras=True)
    return {each.alias or name: each.annotation for name, each in kind.model_fields.items()}


def _names_of_kind(members: dict[str, Any]) -> list[str]:
    """The values of ``type`` of an object."""
    kinds = _parts(members.get("type"))
    return [str(each) for kind in kinds if get_origin(kind) is Literal for each in get_args(kind)]


def _is_of(schema: Json, name: str) -> bool:
    """Returns whether a schema takes objects of a kind; one without kinds takes any."""
    return not (kinds := kinds_of(schema)) or name in kinds


def _may_be(schema: Json, name: str) -> bool:
    types_ = schema.get("type", [])
    return name in ([types_] if isinstance(types_, str) else types_)


def _takes(value: Any, schemas: list[Json]) -> bool:
    for schema in schemas:
        if "const" in schema or "enum" in schema:
            if value in [schema.get("const"), *schema.get("enum", ())]:
                return True
        elif _may_be(schema, {bool: "boolean", int: "integer"}.get(type(value), "string")):
            return schema.get("maxLength") != 0
    return not schemas


def _alternatives(schema: Json, components: Json) -> Iterator[Json]:
    """The schema, or those that it refers to."""
    if "$ref" in schema:
        yield from _alternatives(components[schema["$ref"].rpartition("/")[2]], components)
    elif "anyOf" in schema:
        for each in schema["anyOf"]:
            yield from _alternatives(each, components)
    else:
        yield schema


def _parts(kind: Any) -> list[Any]:
    if get_origin(kind) in (Required, NotRequired) or hasattr(kind, "__metadata__"):
        return _parts(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return [each for part in get_args(kind) for each in _parts(part)]
    return [kind]


def _items(kind: Any) -> Any:
    """The type of the items of a list; None of what is no list."""
    arguments = get_args(kind)
    return arguments[0] if len(arguments) == 1 and get_origin(kind) is not Literal else None


if __name__ == "__main__":
    sys.exit(main())
