"""The OpenAPI description of problems and of the two health checks."""

from collections.abc import Iterable, Mapping
from typing import Any

from config.api.handlers import CONTENT_TYPE
from config.api.problems import Problem
from config.middleware.request_id import HEADER as REQUEST_ID

Described = dict[str, Any]

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


def problem_answer(status: int, codes: Iterable[str], *, model_call: bool) -> Described:
    """Describes the answer with one status and any of these codes."""
    listed = list(codes)
    known = known_problems()
    properties: Described = {"status": {"const": status}, "code": {"enum": listed}}
    for code in listed:
        properties |= MEMBERS.get(code, {})
    schema = {
        "allOf": [_ref("ModelProblem" if model_call else "Problem"), {"properties": properties}]
    }
    return {
        "description": "; ".join(f"`{code}`: {known[code].default_detail}" for code in listed),
        "content": {CONTENT_TYPE: {"schema": schema}},
    }


def headers_of(status: str) -> Described:
    """Returns references to the headers of every answer with this status."""
    names = [REQUEST_ID]
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
            "status": {"type": "string", "enum": ["ok", "degraded", "unavailable"]},
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
                "description": "Whether the service can do its work. Takes plain HTTP and any host name.",
                "tags": ["operations"],
                "security": [{}],
                "responses": {
                    "200": {
                        "description": "The service works; `degraded` while only the cache is away.",
                        **answer,
                    },
                    "503": {"description": "The database is away.", **answer},
                },
            }
        },
        "/livez": {
            "get": {
                "operationId": "livez",
                "description": "Whether the process serves; checks nothing else.",
                "tags": ["operations"],
                "security": [{}],
                "responses": {"204": {"description": "The process serves."}},
            }
        },
    }


def components() -> dict[str, Described]:
    """Returns the components that the answers refer to, by kind."""
    text: Described = {"type": "string"}
    problem: Described = {
        "type": "object",
        "description": "An error (RFC 9457). Members are only ever added.",
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            "title": text,
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {**text, "description": "A sentence for a person."},
            "code": {**_ref("ProblemCode"), "description": "What to act on."},
            "request_id": text,
            "errors": {"type": "array", "items": _ref("Fault")},
        },
        "required": ["type", "title", "status", "detail", "code", "request_id"],
    }
    fault: Described = {
        "type": "object",
        "description": "One fault of an input; `pointer` is a JSON pointer (RFC 6901).",
        "properties": {"pointer": text, "code": text, "detail": text},
        "required": ["pointer", "code", "detail"],
    }
    nullable: Described = {"type": ["string", "null"]}
    openai: Described = {
        "type": "object",
        "description": "The same error as OpenAI clients read it.",
        "properties": {"message": text, "type": text, "code": text, "param": nullable},
        "required": ["message", "type", "code", "param"],
    }
    model_problem: Described = {
        "allOf": [
            _ref("Problem"),
            {"properties": {"error": _ref("OpenAIError")}, "required": ["error"]},
        ]
    }
    schemas = {
        "Problem": problem,
        "ProblemCode": {"type": "string", "enum": list(known_problems())},
        "Fault": fault,
        "ModelProblem": model_problem,
        "OpenAIError": openai,
    }
    return {"schemas": schemas, "headers": dict(HEADERS)}


def _ref(name: str) -> Described:
    return {"$ref": f"#/components/schemas/{name}"}
