"""Renders problems for REST framework, Django's error handlers and middleware.

All errors end in :func:`render` and so have one shape. Browsers on the pages under ``/admin/`` and ``/account/`` get
the same text as a page.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.middleware.csrf import REASON_NO_CSRF_COOKIE
from django.template.loader import render_to_string

from config.platform.problems.error_mapping import BY_STATUS, problem_of
from config.platform.problems.problem import (
    InternalError,
    InvalidRequest,
    MalformedRequest,
    NotFound,
    PermissionRefused,
    Problem,
)
from config.platform.request.request_id import id_of
from config.platform.request.routes import route_of

CONTENT_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="shell"'
TOKEN_REFUSED = frozenset({"invalid_access_token", "access_token_expired", "access_revoked"})
EXPIRED = "access_token_expired"
CONSOLE = "/admin/"
PAGES = (CONSOLE, "/account/")
API, MODEL_CALLS = "/v1/", "/v1/llm/"
MOVED, MOVED_AS_IT_IS = 301, 308
# Paths that SDKs call when their base URL lacks the prefix of model calls.
ASTRAY = re.compile(
    r"(?:/(?:api|openai|llm|v1))*/(?:chat|completions|responses|embeddings|messages|models)(?:/|$)"
)
# The addresses of Anthropic's SDKs, which read errors in a shape of their own.
MESSAGES = ("/v1/llm/messages", "/v1/llm/v1/")
# An error page outside of the console loads nothing.
PAGE_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

OPENAI_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
}
SPENT = "insufficient_quota"
ANTHROPIC_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}

log = logging.getLogger(__name__)


def render(request: HttpRequest, problem: Problem) -> HttpResponse:
    """Renders a problem as ``application/problem+json``."""
    body: dict[str, Any] = {
        "type": f"/problems/{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "request_id": id_of(request),
    }
    if problem.errors:
        body["errors"] = [
            {"pointer": fault.pointer, "code": fault.code, "detail": fault.detail}
            for fault in problem.errors
        ]
    if request.path_info.startswith(MESSAGES):
        body |= anthropic_error(problem)
    elif request.path_info.startswith(MODEL_CALLS) or ASTRAY.match(request.path_info):
        body["error"] = openai_error(problem)
    body |= {name: value for name, value in problem.members.items() if name not in body}
    text = json.dumps(body, cls=DjangoJSONEncoder, ensure_ascii=False)
    # A pointer repeats names of the input, which may contain a lone surrogate.
    response = HttpResponse(
        text.encode("utf-8", "replace"), status=problem.status, content_type=CONTENT_TYPE
    )
    if request.path_info.startswith(MESSAGES):
        # The header that these SDKs read.
        response["request-id"] = id_of(request)
    if request.path_info.startswith(MODEL_CALLS) and _stays_unauthenticated(problem):
        response["x-should-retry"] = "false"
    return _with_headers(response, problem)


def _stays_unauthenticated(problem: Problem) -> bool:
    """Returns whether the same key or token stays refused; an expired token may have been renewed by then."""
    return problem.status == 401 and problem.code != EXPIRED


def answer(request: HttpRequest, problem: Problem) -> HttpResponse:
    """Renders a problem as a page for a browser on a page of ours, and as JSON for everyone else."""
    if not _on_a_page(request):
        return render(request, problem)
    if request.path_info.startswith(CONSOLE):
        console: Any = admin.site
        return _with_headers(console.problem_page(request, problem), problem)
    page = render_to_string("problem.html", {"problem": problem, "request_id": id_of(request)})
    response = HttpResponse(page, status=problem.status)
    response["Content-Security-Policy"] = PAGE_POLICY
    return _with_headers(response, problem)


def openai_error(problem: Problem) -> dict[str, str | None]:
    """Returns the member ``error`` that OpenAI clients read; ``param`` is the place of the first fault."""
    code = problem.sdk_code or problem.code
    if code == SPENT:
        kind = SPENT
    else:
        kind = OPENAI_TYPES.get(
            problem.status, "api_error" if problem.status > 500 else "invalid_request_error"
        )
    return {
        "message": _message(problem),
        "type": kind,
        "code": code,
        "param": _param(problem.errors[0].pointer) if problem.errors else None,
    }


def anthropic_error(problem: Problem) -> dict[str, Any]:
    """Returns the members that Anthropic's clients read."""
    kind = ANTHROPIC_TYPES.get(
        problem.status, "api_error" if problem.status >= 500 else "invalid_request_error"
    )
    details = {"error_code": problem.code, **problem.sdk_details}
    return {
        "type": "error",
        "error": {"type": kind, "message": _message(problem), "details": details},
    }


def _message(problem: Problem) -> str:
    """Returns the fault and its place in one sentence: SDKs print it and none of ``errors``."""
    if not problem.errors or problem.detail != problem.default_detail:
        return problem.detail
    first, *others = problem.errors
    where = _param(first.pointer)
    also = f" (The first of {len(problem.errors)} faults.)" if others else ""
    return f"{where}: {first.detail}{also}" if where else f"{first.detail}{also}"


def for_rest_framework(exc: Exception, context: Mapping[str, Any]) -> HttpResponse | None:
    """REST framework's exception handler; leaves unexpected exceptions to :func:`server_error`."""
    request: HttpRequest = context["request"]
    problem = problem_of(exc)
    if isinstance(problem, InvalidRequest) and _lacks_a_body(request):
        problem = MalformedRequest("The body must be a JSON object; it was empty.")
    return render(request, problem) if problem else None


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Django's handler400, for a bad host or body."""
    return _answer_to(request, exception, MalformedRequest)


def permission_denied(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Django's handler403."""
    return _answer_to(request, exception, PermissionRefused)


def page_not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Django's handler404."""
    if ASTRAY.match(request.path_info):
        return render(request, NotFound("There is nothing here. Model calls are under /v1/llm/."))
    return _answer_to(request, exception, NotFound)


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500, also for problems and database outages outside of views.

    Logs unexpected exceptions, here and nowhere else.
    """
    error = sys.exc_info()[1]
    problem = problem_of(error) if error else None
    if problem is None:
        log.error("internal_error", exc_info=error, extra={"route": route_of(request)})
        problem = InternalError()
    return answer(request, problem)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Django's CSRF_FAILURE_VIEW. Reloading the page fixes neither a foreign origin nor lost cookies."""
    sentence = "This form has expired. Please load the page again."
    if reason.startswith(("Origin ", "Referer ")):
        sentence = (
            "This form came from another address, or did not say which. Open it at "
            f"{settings.BASE_URL}, and make sure that a proxy passes on Origin, Host and Referrer-Policy unchanged."
        )
    elif reason == REASON_NO_CSRF_COOKIE:
        sentence += " If that does not help, allow this browser to keep cookies for this address."
    return answer(request, PermissionRefused(sentence))


class PlainHttp(PermissionRefused):
    """A call of the API came over plain HTTP. A redirect would hide that its secrets are sent in clear text."""

    default_detail = (
        "This service only answers over HTTPS. A password, token or key that came with this request was sent "
        "unencrypted: use the https address, and replace it."
    )


def _led_to_https(request: HttpRequest, redirect: HttpResponseBase) -> HttpResponseBase:
    """Refuses a call of the API, and redirects a form without loss: clients repeat a 301 as GET."""
    if request.path_info.startswith(API):
        return render(request, PlainHttp())
    if request.method not in {"GET", "HEAD"}:
        redirect.status_code = MOVED_AS_IT_IS
    return redirect


class ProblemMiddleware:
    """Renders errors of plain Django views, middleware and libraries as problems."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if (
            response.status_code == MOVED
            and settings.SECURE_SSL_REDIRECT
            and not request.is_secure()
        ):
            return _led_to_https(request, response)
        kind = BY_STATUS.get(response.status_code)
        if kind is None or response.streaming or _on_a_page(request) or not _is_prose(response):
            return response
        kept = ("Allow", "Retry-After", "WWW-Authenticate")
        headers = {name: response.headers[name] for name in kept if name in response.headers}
        problem = kind()
        problem.headers |= headers
        return render(request, problem)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        problem = problem_of(exception)
        return answer(request, problem) if problem else None


def _answer_to(
    request: HttpRequest, error: Exception | None, default: type[Problem]
) -> HttpResponse:
    problem = problem_of(error) if error else None
    return answer(request, problem or default())


def _with_headers(response: HttpResponse, problem: Problem) -> HttpResponse:
    # For the log line of the request and the log of refusals.
    response.problem = problem  # type: ignore[attr-defined]
    response["Cache-Control"] = "no-store"
    if problem.status == 401:
        refused = problem.code in TOKEN_REFUSED
        response["WWW-Authenticate"] = (
            f'{CHALLENGE}, error="invalid_token"' if refused else CHALLENGE
        )
    for name, value in problem.headers.items():
        response[name] = value
    return response


def _on_a_page(request: HttpRequest) -> bool:
    return request.path_info.startswith(PAGES) and "text/html" in request.META.get(
        "HTTP_ACCEPT", ""
    )


def _is_prose(response: HttpResponseBase) -> bool:
    """Returns whether a response is text for a person or empty; a health report, for instance, is neither."""
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip()
    return kind in {"", "text/html", "text/plain"}


def _lacks_a_body(request: HttpRequest) -> bool:
    return request.method in {"POST", "PUT", "PATCH"} and request.META.get("CONTENT_LENGTH") in {
        None,
        "",
        "0",
    }


def _param(at: str) -> str:
    """Turns ``/messages/0/content`` into OpenAI's form, ``messages[0].content``."""
    text = ""
    for part in at.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        text += f"[{name}]" if name.isdecimal() else f".{name}"
    return text.removeprefix(".")
