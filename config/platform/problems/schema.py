"""The OpenAPI description of problems and of the two health checks; its fixed parts are in ``problems.json``."""

from collections.abc import Collection, Iterable
from json import loads
from pathlib import Path
from typing import Any

from config.platform.problems.problem import Problem, known_problems
from config.platform.problems.rendering import ANTHROPIC_TYPES, CONTENT_TYPE, MESSAGES, MODEL_CALLS
from config.platform.request.request_id import HEADER as REQUEST_ID

Described = dict[str, Any]

_TEXT = Path(__file__).with_name("problems.json").read_text(encoding="utf-8")


def problem_answer(codes: Iterable[str], *, path: str) -> Described:
    """Describes the answer with any of these codes, which share a status, at an address."""
    listed = list(codes)
    shapes = [_ref(component_of(code, kind=_kind_of(path))) for code in listed]
    return {
        "description": ", ".join(f"`{code}`" for code in listed),
        "content": {CONTENT_TYPE: {"schema": {"oneOf": shapes} if shapes[1:] else shapes[0]}},
    }


def component_of(code: str, *, kind: str = "") -> str:
    """Names the component of a problem: `RateLimitedProblem`, at model calls `RateLimitedCallProblem`."""
    return f"{''.join(word.capitalize() for word in code.split('_'))}{kind}Problem"


def _kind_of(path: str) -> str:
    if path.startswith(MESSAGES):
        return "Message"
    return "Call" if path.startswith(MODEL_CALLS) else ""


def headers_of(status: str, *, has_etag: bool) -> Described:
    """Returns references to the headers of every answer with this status."""
    names = [REQUEST_ID]
    if has_etag and status in {"200", "304"}:
        names.append("ETag")
    if status == "401":
        names.append("WWW-Authenticate")
    if status in {"429", "502", "503", "504"}:
        names.append("Retry-After")
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def health_paths() -> dict[str, Described]:
    """Describes the two health checks, which ``config/platform/edge/health.py`` answers before any view."""
    paths: dict[str, Described] = loads(_TEXT)["paths"]
    return paths


def components() -> dict[str, Described]:
    """Returns the components that the answers may refer to, by kind."""
    described = loads(_TEXT)
    schemas: Described = described["schemas"]
    kinds = sorted({*ANTHROPIC_TYPES.values(), "api_error", "invalid_request_error"})
    schemas["AnthropicError"]["properties"]["type"]["enum"] = kinds
    schemas["ProblemCode"] = {"type": "string", "enum": list(known_problems())}
    for code, problem in known_problems().items():
        plain = component_of(code)
        schemas[plain] = _described(problem, described["members"].get(code, {}))
        for kind_of_call, error in (("Call", "OpenAIError"), ("Message", "AnthropicError")):
            schemas[component_of(code, kind=kind_of_call)] = _all_of(
                _ref(plain), _object({"error": _ref(error)})
            )
    return {"schemas": schemas, "headers": described["headers"]}


def _described(problem: type[Problem], members: Described) -> Described:
    """Returns the component of one problem. Its status and code are constants, by which clients tell problems apart."""
    kind = {"status": {"const": problem.status}, "code": {"const": problem.code}}
    shape = _object({**kind, **members}, optional=members.keys() - {"retry_after_iso"})
    return {**_all_of(_ref("ProblemBase"), shape), "description": problem.default_detail}


def _object(properties: Described, *, optional: Collection[str] = ()) -> Described:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _all_of(*shapes: Described) -> Described:
    return {"allOf": list(shapes)}


def _ref(name: str) -> Described:
    return {"$ref": f"#/components/schemas/{name}"}
