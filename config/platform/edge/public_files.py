"""Serves static files, and compresses them and the API's schema where the caller accepts gzip.

Both are the same for everybody. Answers to people are never compressed, because an attacker who chooses a part of one
could infer the rest from its length (BREACH); nor are streams, which a compressor would delay.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from whitenoise.middleware import WhiteNoiseMiddleware

PLACES = ("/static/", "/v1/schema")


class PublicFilesMiddleware(GZipMiddleware):
    """Wraps Django's compression around the library for static files, for these addresses only."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        super().__init__(WhiteNoiseMiddleware(get_response))

    def process_request(self, request: HttpRequest) -> None:
        """Makes the ETag of a compressed file match (RFC 9110, 13.1.2); the library uses strong comparison."""
        tags = request.META.get("HTTP_IF_NONE_MATCH")
        if tags and request.path_info.startswith(PLACES):
            request.META["HTTP_IF_NONE_MATCH"] = tags.replace('W/"', '"')

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        if response.status_code != 200 or not request.path_info.startswith(PLACES):
            return response
        return super().process_response(request, response)
