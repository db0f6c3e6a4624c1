"""The OpenAPI description of problems and of the two health checks."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from config.api.handlers import ANTHROPIC_TYPES, CONTENT_TYPE, MESSAGES, MODEL_CALLS
from config.api.problems import Problem
from config.middleware.request_id import HEADER as REQUEST_ID

Described = dict[str, Any]

_TEXT_OR_NULL: Described = {"type": ["string", "null"]}
_INSTANT: Described = {"type": "string", "format": "date-time"}
_TOKENS: Described = {"type": "integer", "minimum": 0}
_SPENT: Described = {
    "retry_after_iso": _INSTANT,
    "cap": _TOKENS,
    "used": _TOKENS,
    "reserved": _TOKENS,
    "requested": {
        **_TOKENS,
        "description": "The least that this call needs: its estimated prompt, and 16 output tokens where those count.",
    },
    "remaining": {
        **_TOKENS,
        "description": "The rest of `cap`; a call that needs no more is still answered.",
    },
}
# Additional members, by code.
MEMBERS: Mapping[str, Described] = {
    "request_too_large": {
        "max_bytes": {"type": "integer", "description": "The most bytes that this address allows."},
        "limit": {"type": "integer", "description": "The same as `max_bytes`."},
        "max_events": {
            "type": "integer",
            "description": "The most events of a telemetry batch, where there were more.",
        },
    },
    "rate_limited": {"retry_after_iso": _INSTANT},
    "daily_limit_reached": _SPENT,
    "budget_exceeded": {"retry_after_iso": _INSTANT},
    "cap_reserved": {name: _SPENT[name] for name in ("retry_after_iso", "requested", "remaining")},
    "monthly_cap_exceeded": {
        **_SPENT,
        "dimension": {"type": "string", "enum": ["input", "output"]},
    },
}
HEADERS: Mapping[str, Described] = {
    REQUEST_ID: {
        "description": "The id of this request in the logs; the caller's own if it sent a well-formed one.",
        "required": True,
        "schema": {"type": "string", "minLength": 8, "maxLength": 64},
    },
    "WWW-Authenticate": {
        "description": "How to authenticate (RFC 6750).",
        "required": True,
        "schema": {"type": "string"},
    },
    "ETag": {
        "description": "The tag of this answer, for `If-None-Match`.",
        "required": True,
        "schema": {"type": "string"},
    },
    "Retry-After": {
        "description": "Seconds after which to try again.",
        "schema": {"type": "integer", "minimum": 1},
    },
}


def known_problems() -> dict[str, type[Problem]]:
    """Returns every loaded problem by code; the most general one where several share a code."""
    known: dict[str, type[Problem]] = {}
    level: list[type[Problem]] = [Problem]
    while level:
        for each in level:
            known.setdefault(each.code, each)
        level = [kind for each in level for kind in each.__subclasses__()]
    return dict(sorted(known.items()))


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
    """Describes the two health checks, which ``config/middleware/health.py`` answers before any view."""
    report: Described = {
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["ok", "degraded", "unavailable", "stopping"]},
            "version": {"type": "string"},
            "checks": {
                "type": "object",
                "properties": {
                    "database": {"type": "string", "enum": ["ok", "unavailable"]},
                    "cache": {"type": "string", "enum": ["ok", "unavailable", "not_configured"]},
                },
                "required": ["database", "cache"],
            },
        },
        "required": ["status", "version", "checks"],
    }
    answer: Described = {"content": {"application/json": {"schema": report}}}
    return {
        "/healthz": {
            "get": {
                "operationId": "healthz",
                "summary": "Whether the service can do its work",
                "description": "Whether the service can do its work. Takes plain HTTP and any host name.",
                "tags": ["operations"],
                "security": [],
                "responses": {
                    "200": {
                        "description": "The service works; `degraded` while only the cache is away.",
                        **answer,
                    },
                    "503": {
                        "description": "The database is away, or this process stops.",
                        **answer,
                    },
                },
            }
        },
        "/livez": {
            "get": {
                "operationId": "livez",
                "summary": "Whether the process serves",
                "description": "Whether the process serves; checks nothing else.",
                "tags": ["operations"],
                "security": [],
                "responses": {"204": {"description": "The process serves."}},
            }
        },
    }


def components() -> dict[str, Described]:
    """Returns the components that the answers may refer to, by kind."""
    text: Described = {"type": "string"}
    base = _object(
        {
            "type": {**text, "format": "uri-reference"},
            "title": text,
            "detail": {**text, "description": "A sentence for a person."},
            "request_id": text,
            "errors": {"type": "array", "items": _ref("Fault")},
        },
        optional={"errors"},
    )
    kind: Described = {
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "code": {**_ref("ProblemCode"), "description": "What to act on."},
    }
    fault = _object({"pointer": text, "code": text, "detail": text})
    openai = _object({**dict.fromkeys(("message", "type", "code"), text), "param": _TEXT_OR_NULL})
    kinds = sorted({*ANTHROPIC_TYPES.values(), "api_error", "invalid_request_error"})
    anthropic = _object(
        {
            "type": {**text, "enum": kinds},
            "message": text,
            "details": _object({"error_code": _ref("ProblemCode")}),
        }
    )
    schemas = {
        "ProblemBase": {**base, "description": "What every problem has besides its kind."},
        "Problem": {
            **_all_of(_ref("ProblemBase"), _object(kind)),
            "description": "An error (RFC 9457). Members are only ever added.",
        },
        "ProblemCode": {"type": "string", "enum": list(known_problems())},
        "Fault": {
            **fault,
            "description": "One fault of an input; `pointer` is a JSON pointer (RFC 6901).",
        },
        "AnthropicError": {
            **anthropic,
            "description": "The same error as Anthropic's clients read it; `type` beside it is `error`.",
        },
        "OpenAIError": {**openai, "description": "The same error as OpenAI clients read it."},
    }
    for code, problem in known_problems().items():
        plain = component_of(code)
        schemas[plain] = _described(problem)
        for kind_of_call, error in (("Call", "OpenAIError"), ("Message", "AnthropicError")):
            schemas[component_of(code, kind=kind_of_call)] = _all_of(
                _ref(plain), _object({"error": _ref(error)})
            )
    return {"schemas": schemas, "headers": dict(HEADERS)}


def _described(problem: type[Problem]) -> Described:
    """The component of one problem. Its status and code are constants, so that clients tell problems apart by them."""
    members = MEMBERS.get(problem.code, {})
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
