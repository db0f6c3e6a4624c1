"""The outermost middleware: the parts of every request and every answer.

The CORS library (``CORS_ORIGINS``) runs inside it, so that pages of other origins can read every answer, refusals and
health checks included.
"""

from collections.abc import Callable
from time import perf_counter
from typing import cast

from corsheaders.middleware import CorsMiddleware
from django.http import HttpRequest, HttpResponseBase

from config.platform.edge import request_log
from config.platform.request import client_address, request_id

# Browsers neither run nor frame any part of an answer. A page that needs more sets its own policy.
POLICY = "default-src 'none'; frame-ancestors 'none'"
# Sent at a sign-out. Not "cookies": that would clear those of every other host of the domain.
FORGET = {"Clear-Site-Data": '"cache", "storage"'}


class EdgeMiddleware:
    """Gives a request its id and its client's address, and an answer its headers and its line in the log."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = CorsMiddleware(get_response)

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        started = perf_counter()
        named = request_id.begin(request)
        client_address.find(request)
        # There is no ASGI here.
        response = cast("HttpResponseBase", self._get_response(request))
        response.headers[request_id.HEADER] = named
        response.headers.setdefault("Content-Security-Policy", POLICY)
        response.headers["X-Content-Type-Options"] = "nosniff"
        request_log.log_when_sent(request, response, started)
        return response
