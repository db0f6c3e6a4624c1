"""Compresses the API's schema and static files, each once a process, where the caller accepts gzip.

These are the same for everybody. Answers to people are never compressed, because their length would tell of their
content where an attacker chooses a part of it; nor are streams, which a compressor would hold back.
"""

import gzip
import re
from collections.abc import Callable

from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase
from django.utils.cache import patch_vary_headers

# A higher one takes several times as long for 1 % less.
LEVEL = 6
PLACES = ("/static/", "/v1/schema")
ACCEPTED = re.compile(r"(?:^|,)\s*(?:x-)?gzip\s*(?!;\s*q=0(?:\.0*)?\s*(?:,|$))", re.IGNORECASE)
WORTH_IT = re.compile(r"text/|application/(?:json|javascript|yaml|xml|vnd\.oai\.openapi)|image/svg")


class CompressionMiddleware:
    """Knows an answer again by its address and its ETag: Django's own middleware takes 63 ms for each script."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        self._kept: dict[tuple[str, str], bytes] = {}

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(PLACES):
            return self.get_response(request)
        if "HTTP_IF_NONE_MATCH" in request.META:
            # Compared weakly (RFC 9110, 13.1.2), which the library for static files does not know.
            given = request.META["HTTP_IF_NONE_MATCH"]
            request.META["HTTP_IF_NONE_MATCH"] = given.replace('W/"', '"')
        response = self.get_response(request)
        kind = response.headers.get("Content-Type", "")
        if not WORTH_IT.match(kind):
            return response
        patch_vary_headers(response, ("Accept-Encoding",))
        whole = response.status_code == 200 and "ETag" in response.headers
        if (
            whole
            and request.method == "GET"
            and ACCEPTED.search(request.META.get("HTTP_ACCEPT_ENCODING", ""))
        ):
            return self._compressed(request.path_info, response)
        return response

    def _compressed(self, path: str, response: HttpResponseBase) -> HttpResponseBase:
        known = path, response.headers["ETag"]
        if known not in self._kept:
            self._kept[known] = gzip.compress(_body(response), LEVEL, mtime=0)
        response.close()
        whole = HttpResponse(self._kept[known], headers=dict(response.items()))
        whole.headers["Content-Encoding"] = "gzip"
        whole.headers["Content-Length"] = str(len(whole.content))
        # Other bytes than those of the same content uncompressed.
        whole.headers["ETag"] = f"W/{known[1]}"
        return whole


def _body(response: HttpResponseBase) -> bytes:
    if isinstance(response, FileResponse):
        return b"".join(response)
    assert isinstance(response, HttpResponse)
    return response.content
