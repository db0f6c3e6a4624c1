"""Tells browsers, with every answer, to run and frame nothing of it and to believe its content type.

A page that needs more has a policy of its own. The middleware is outermost, so that health checks and errors rendered
before any view have these headers too.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

POLICY = "default-src 'none'; frame-ancestors 'none'"


class BrowserPolicyMiddleware:
    """Adds ``Content-Security-Policy`` where an answer has none, and ``X-Content-Type-Options``."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response
