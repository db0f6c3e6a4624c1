"""The OpenAPI schema of model calls: the descriptions of their views, and the components that all share.

The answers are in ``answers.json``, the requests in ``llmproxy/requests/schemas``.
"""

from collections.abc import Callable, Sequence
from json import loads
from pathlib import Path
from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema

from config.platform.api.schema import F, problems
from llmproxy.requests.call_request import Surface
from llmproxy.requests.checking import read_schemas
from llmproxy.requests.messages import VERSIONS

Schema = dict[str, Any]

_ANSWERS: Schema = loads(Path(__file__).with_name("answers.json").read_text(encoding="utf-8"))
# OpenAPI before version 3.2 cannot describe the items of a stream: some programs read this as one item, and generated
# clients as the text of all.
STREAMS: dict[str, Schema] = _ANSWERS["streams"]


def ref(name: str) -> Schema:
    """Refers to a component of the published schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def chat_request(*, stream: bool) -> Schema:
    """The request of an address that always streams, or never."""
    member = {"stream": {"anyOf": [{"const": stream}, {"type": "null"}]}}
    return {"allOf": [ref("ChatRequest"), {"type": "object", "properties": member}]}


REMAINING = [
    OpenApiParameter(name, str, OpenApiParameter.HEADER, response=[200], description=description)
    for name, description in _ANSWERS["headers"].items()
]
MESSAGE_HEADERS = [
    OpenApiParameter(
        "anthropic-version",
        str,
        OpenApiParameter.HEADER,
        enum=VERSIONS,
        description=f"{' or '.join(VERSIONS)}; absent, the first.",
    ),
    OpenApiParameter(
        "anthropic-beta",
        str,
        OpenApiParameter.HEADER,
        description="Names joined by commas. Those that change neither a price nor the meaning of usage go on to the "
        "provider; others are left out.",
    ),
]
EXAMPLES = [
    OpenApiExample(
        "A question",
        value={"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 50},
        request_only=True,
    )
]


def model_call(
    name: str,
    *,
    request: Schema,
    answer: Schema | None = None,
    stream: Schema | None = None,
    headers: Sequence[OpenApiParameter] = (),
    examples: Sequence[OpenApiExample] = (),
) -> Callable[[F], F]:
    """Describes the request of a model call, and its answers in one piece or as a stream."""
    answers = {(200, "application/json"): answer, (200, "text/event-stream"): stream}
    described = extend_schema(
        operation_id=name,
        parameters=[*headers, *REMAINING],
        request={"application/json": request},
        responses={kind: schema for kind, schema in answers.items() if schema is not None},
        examples=examples,
        tags=["models"],
    )
    return lambda view: problems(*_ANSWERS["problems"])(described(view))


def token_count(
    name: str, *, request: Schema, answer: Schema, headers: Sequence[OpenApiParameter] = ()
) -> Callable[[F], F]:
    """Describes the request and the answer of a count of a prompt."""
    described = extend_schema(
        operation_id=name,
        parameters=[*headers],
        request={"application/json": request},
        responses={(200, "application/json"): answer},
        tags=["models"],
    )
    # A count reserves nothing, and a provider that fails leaves an estimate.
    none = {"cap_reserved", "provider_error", "provider_timeout"}
    codes = [each for each in _ANSWERS["problems"] if each not in none]
    return lambda view: problems(*codes)(described(view))


def describe_calls(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Postprocessing: adds the components of model calls."""
    described = result["components"].setdefault("schemas", {})
    for surface in Surface:
        described |= read_schemas(surface)["components"]
    described |= _ANSWERS["components"]
    return result
