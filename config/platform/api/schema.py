"""The published description of the API: OpenAPI 3.1, generated from the views.

Every operation lists the problems it can answer with. This module adds those of any request, including those raised
before a view runs; a view names those of its rules:

    @problems("licence_suspended")  # of every action
    class Calls(ViewSet):
        @problems("monthly_cap_exceeded", "not_entitled")  # of one
        @extend_schema(...)
        def complete(self, request): ...

The views that publish it are in ``config/platform/api/docs.py``.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from django.conf import settings
from drf_spectacular.drainage import error, set_override
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiResponse

from config.platform.api.negotiation import WhateverAccept
from config.platform.edge.ratelimits.table import limit_of as address_limit_of
from config.platform.problems.problem import known_problems
from config.platform.problems.schema import (
    components,
    headers_of,
    health_paths,
    problem_answer,
)

TOKEN_PROBLEMS = (
    "not_authenticated",
    "invalid_access_token",
    "access_token_expired",
    "access_revoked",
)

# The component of any problem, for clients.
GENERAL = {"Problem"}

_settings: dict[str, Any] = settings.REST_FRAMEWORK
F = TypeVar("F", bound=Callable[..., Any])


def problems(*codes: str) -> Callable[[F], F]:
    """Declares the problems of an action's rules, or of every action of a view."""

    def note(action_or_view: F) -> F:
        action_or_view.problems = codes  # type: ignore[attr-defined]
        return action_or_view

    return note


def no_content(description: str) -> dict[int, OpenApiResponse]:
    """The response without a body."""
    return {204: OpenApiResponse(description=description)}


class Schema(AutoSchema):
    """Adds to an operation the problems it can answer with."""

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        if operation is not None:
            for status, codes in self._codes_by_status(operation).items():
                shape = problem_answer(codes, path=self.path)
                operation["responses"].setdefault(str(status), shape)
        return operation

    def get_summary(self) -> str | None:
        """Returns the first clause of the description."""
        summary: str = re.split(r"[.:;](?:\s|$)", self.get_description(), maxsplit=1)[0]
        return summary

    def _codes_by_status(self, operation: dict[str, Any]) -> dict[int, list[str]]:
        known = known_problems()
        statuses: dict[int, list[str]] = {}
        codes = [*self._common_codes(operation), *self._named_codes(), *self._limits(operation)]
        for code in dict.fromkeys(codes):
            if code not in known:
                error(f"no problem has the code {code!r}")
                continue
            statuses.setdefault(known[code].status, []).append(code)
        return dict(sorted(statuses.items()))

    def _common_codes(self, operation: dict[str, Any]) -> Iterable[str]:
        """Yields the codes that a request of this kind can get whatever its rules."""
        yield from (
            "malformed_request",
            "request_too_large",
            "internal_error",
            "service_unavailable",
        )
        if "requestBody" in operation or "parameters" in operation:
            yield "invalid_request"
        if "requestBody" in operation:
            yield "unsupported_media_type"
            yield "request_timeout"
        if any(operation.get("security", ())):
            yield from TOKEN_PROBLEMS
        if "{" in self.path:
            yield "not_found"
        if not issubclass(self.view.content_negotiation_class, WhateverAccept):
            yield "not_acceptable"

    def _limits(self, operation: dict[str, Any]) -> Iterable[str]:
        by_person = any(operation.get("security", ())) and self.view.throttle_classes
        if by_person or address_limit_of(self.method, self.path):
            yield "rate_limited"

    def _named_codes(self) -> Iterable[str]:
        yield from getattr(self.view, "problems", ())
        action = getattr(self.view, getattr(self.view, "action", None) or self.method.lower(), None)
        yield from getattr(action, "problems", ())


class BearerToken(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # its base has no types
    target_class = str(_settings["DEFAULT_AUTHENTICATION_CLASSES"][0])
    match_subclasses = True
    name = "accessToken"
    priority = 1

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        # Clients see one security scheme, whichever class a view uses.
        set_override(type(self.target), "suppress_collision_warning", True)
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "The access token of a sign-in at /v1/auth/login.",
        }


def _require_body(operation: dict[str, Any], components: dict[str, Any]) -> None:
    """Marks a body as required where its schema is written by hand, so that the library cannot tell."""
    body: dict[str, Any] = operation.get("requestBody", {})
    shapes = [content["schema"] for content in body.get("content", {}).values()]
    for shape in shapes:
        named = components.get(shape.get("$ref", "").rpartition("/")[2], {})
        shapes += shape.get("allOf", ())
        if shape.get("required") or named.get("required"):
            body["required"] = True


def describe_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Adds the components of problems, the headers of every answer, and the health checks, as a postprocessing hook."""
    result["paths"] = {**health_paths(), **result["paths"]}
    described = result.setdefault("components", {})
    for kind, named in components().items():
        described.setdefault(kind, {}).update(named)
    for path in result["paths"].values():
        for operation in path.values():
            _require_body(operation, described["schemas"])
            if operation.get("security") == [{}]:
                # Without this, generated clients would ask for a token.
                operation["security"] = []
            answers = operation["responses"]
            for status, response in answers.items():
                common = headers_of(status, has_etag="304" in answers)
                response["headers"] = {**common, **response.get("headers", {})}
            operation["responses"] = dict(sorted(answers.items()))
    while unused := described["schemas"].keys() - _named(result) - GENERAL:
        for name in unused:
            del described["schemas"][name]
    return result


def _named(part: Any) -> set[str]:
    """Returns the names of the schemas that a part of the document refers to."""
    if isinstance(part, dict):
        named = {part["$ref"].rpartition("/")[2]} if isinstance(part.get("$ref"), str) else set()
        return named.union(*map(_named, part.values()))
    return set().union(*map(_named, part)) if isinstance(part, list) else set()
