"""Requests that came in clear where https is demanded, as far as a plain redirect would lose or hide something.

Pages are led to https by Django's own middleware, behind this one.
"""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, HttpResponsePermanentRedirect

from config.api.handlers import render
from config.api.problems import PermissionRefused


class PlainHttp(PermissionRefused):
    """A program would go on sending its secrets in clear, and never see the redirect that hides it."""

    default_detail = (
        "This service answers over https alone. A password, token or key that came with this request was sent in "
        "clear: use the https address, and replace it."
    )


class PlainHttpMiddleware:
    """Refuses calls of the API, and has forms sent again as they were; clients repeat a 301 as GET."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if settings.SECURE_SSL_REDIRECT and not request.is_secure():
            if request.path_info.startswith("/v1/"):
                return render(request, PlainHttp())
            if request.method not in {"GET", "HEAD"}:
                address = f"https://{request.get_host()}{request.get_full_path()}"
                return HttpResponsePermanentRedirect(address, preserve_request=True)
        return self._get_response(request)
