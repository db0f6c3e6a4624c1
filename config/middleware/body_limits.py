"""Limits the size of request bodies before reading them.

A chunked body has no length and is counted while it is read, so that strangers cannot fill the memory. ``request.body``
stays the exact bytes.
"""

import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponseBase
from django.utils.http import parse_header_parameters
from gunicorn.http.errors import ParseException

from config.api.handlers import answer
from config.api.problems import MalformedRequest, Problem, RequestTooLarge

KIB = 1024
MIB = 1024 * KIB
# Bytes by the beginning of a path. All must be below DATA_UPLOAD_MAX_MEMORY_SIZE, Django's limit.
LIMITS: Mapping[str, int] = {
    "/v1/llm/": 8 * MIB,
    "/v1/telemetry": MIB,
    "/v1/internal/": MIB,
    "/admin/": 5 * MIB // 2,
}
ELSEWHERE = 64 * KIB
LENGTH_DIGITS = 12

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class BodyTooLarge(RequestTooLarge, RequestDataTooBig):
    """The body has more bytes than the address allows; also an error of Django's, which Django handles."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"This address allows at most {limit:,} bytes.", limit=limit, max_bytes=limit
        )


def limit_of(path: str) -> int:
    """Returns how many bytes a body sent to a path may have."""
    return next((limit for prefix, limit in LIMITS.items() if path.startswith(prefix)), ELSEWHERE)


def with_readable_bodies(application: Application) -> Application:
    """Wraps a WSGI application and mends headers of the body that Django reads before any middleware."""

    def call(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["CONTENT_TYPE"] = _safe_content_type(environ.get("CONTENT_TYPE", ""))
        chunked = environ.get("HTTP_TRANSFER_ENCODING") and environ.get("wsgi.input_terminated")
        if chunked and not environ.get("CONTENT_LENGTH"):
            # Django reads no body without a length.
            limit = limit_of(environ.get("PATH_INFO", ""))
            environ["wsgi.input"] = _Bounded(environ["wsgi.input"], limit)
            environ["CONTENT_LENGTH"] = str(limit + 1)
            del environ["HTTP_TRANSFER_ENCODING"]
        return application(environ, start_response)

    return call


class BodyLimitMiddleware:
    """Refuses a body that is too large or has no clear size, and an address with a NUL."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        problem = _problem_of(request)
        return answer(request, problem) if problem else self.get_response(request)


class _Bounded(io.RawIOBase):
    """A body without a length, counted while it is read."""

    def __init__(self, source: Any, limit: int) -> None:
        self._source = source
        self._limit = self._left = limit

    def read(self, size: int | None = -1, /) -> bytes:
        # One byte over the limit is enough to know.
        most = self._left + 1
        try:
            data: bytes = self._source.read(most if size is None or size < 0 else min(size, most))
        except ParseException:
            raise MalformedRequest("The chunks of the body could not be read.") from None
        self._left -= len(data)
        if self._left < 0:
            raise BodyTooLarge(self._limit)
        return data


def _safe_content_type(content_type: str) -> str:
    """Returns a content type that Django can parse, and that names no codec but UTF-8."""
    try:
        _, parameters = parse_header_parameters(content_type)
    except ValueError:
        return ""
    charset = parameters.get("charset", "utf-8").lower()
    if charset in {"utf-8", "utf8"}:
        return content_type
    if "*" in content_type:
        # An extended parameter (RFC 2231) would win over the one below.
        return ""
    # The last charset counts. Django ignores an unknown one, and the parser of JSON refuses it.
    return f"{content_type}; charset={'utf-8' if charset == 'us-ascii' else 'unsupported'}"


def _problem_of(request: HttpRequest) -> Problem | None:
    meta = request.META
    length, chunked = meta.get("CONTENT_LENGTH") or "", meta.get("HTTP_TRANSFER_ENCODING")
    if "\0" in request.path_info or "%00" in meta.get("QUERY_STRING", ""):
        # No text column can hold a NUL, so such an address must not reach a query.
        return MalformedRequest("An address cannot have a NUL character.")
    if isinstance(meta.get("wsgi.input"), _Bounded) or not (length or chunked):
        return None
    if not length:
        return MalformedRequest("Send the body with a Content-Length.")
    if chunked or not (length.isascii() and length.isdecimal()):
        return MalformedRequest("The length of the body is not clear.")
    limit = limit_of(request.path_info)
    too_large = len(length.lstrip("0")) > LENGTH_DIGITS or int(length) > limit
    return BodyTooLarge(limit) if too_large else None
