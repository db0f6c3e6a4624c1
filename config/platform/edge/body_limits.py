"""Limits the size of request bodies before reading them, and the time to receive them.

A chunked body has no length and is counted while it is read, so that strangers cannot fill the memory. A body may take
half a minute plus the time of its size at 10 KB/s, so that trickled bytes cannot hold a connection for hours.
``request.body`` stays the exact bytes.
"""

import io
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from django.core.exceptions import BadRequest, RequestDataTooBig
from django.http import HttpRequest, HttpResponseBase
from django.utils.http import parse_header_parameters
from gunicorn.http.errors import ParseException

from config.platform.concurrency.greenlets import within
from config.platform.problems.problem import (
    MalformedRequest,
    Problem,
    RequestTimeout,
    RequestTooLarge,
)
from config.platform.problems.rendering import answer

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
# The time for a body: a fixed number of seconds, and its bytes at a minimum rate.
GRACE_SECONDS = 30.0
BYTES_A_SECOND = 10_000
# A body without a length is read in pieces, each of which extends its deadline.
PIECE = 16 * KIB

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class BodyTooLarge(RequestTooLarge, RequestDataTooBig):
    """The body has more bytes than the address allows; a subclass of Django's error, which Django handles."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"This address allows at most {limit:,} bytes.", limit=limit, max_bytes=limit
        )


class BodyTooSlow(RequestTimeout, BadRequest):
    """The body did not arrive in time; a subclass of Django's error, which Django handles."""


def limit_of(path: str) -> int:
    """Returns how many bytes a body sent to a path may have."""
    return next((limit for prefix, limit in LIMITS.items() if path.startswith(prefix)), ELSEWHERE)


def is_too_large(length: str, path: str) -> bool:
    """Returns whether a body with this ``Content-Length``, a number, has more bytes than its path allows."""
    return len(length.lstrip("0")) > LENGTH_DIGITS or int(length) > limit_of(path)


# Connections whose last body was abandoned: further bytes are its rest and no request.
cut: WeakSet[socket.socket] = WeakSet()


def with_readable_bodies(application: Application) -> Application:
    """Wraps a WSGI application and corrects headers of the body that Django reads before any middleware."""

    def call(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["CONTENT_TYPE"] = _safe_content_type(environ.get("CONTENT_TYPE", ""))
        length = environ.get("CONTENT_LENGTH") or ""
        chunked = environ.get("HTTP_TRANSFER_ENCODING") and environ.get("wsgi.input_terminated")
        if chunked and not length:
            # Django reads no body without a length.
            limit = limit_of(environ.get("PATH_INFO", ""))
            environ["wsgi.input"] = _Bounded(environ, limit)
            environ["CONTENT_LENGTH"] = str(limit + 1)
            del environ["HTTP_TRANSFER_ENCODING"]
        elif length.isdecimal() and length != "0":
            environ["wsgi.input"] = _Timed(environ, size=int(length[:LENGTH_DIGITS]))
        return application(environ, start_response)

    return call


class BodyLimitMiddleware:
    """Refuses a body that is too large or of ambiguous size, and an address with a NUL."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        problem = _problem_of(request)
        return answer(request, problem) if problem else self.get_response(request)


class _Timed(io.RawIOBase):
    """A body that must arrive within the seconds that ``size`` bytes may take."""

    def __init__(self, environ: Environ, *, size: int) -> None:
        self._source = environ["wsgi.input"]
        self._connection = environ.get("gunicorn.socket")
        self._began = time.monotonic()
        self._size = size

    def read(self, size: int | None = -1, /) -> bytes:
        return self._piece(self._size if size is None or size < 0 else size)

    def _piece(self, size: int) -> bytes:
        ends = self._began + GRACE_SECONDS + self._size / BYTES_A_SECOND
        try:
            data: bytes = within(ends - time.monotonic(), self._source.read, size)
        except TimeoutError:
            self._stop_reading()
            raise BodyTooSlow from None
        return data

    def _stop_reading(self) -> None:
        """Shuts the connection's input down, so that the server does not wait for the rest either."""
        if isinstance(self._connection, socket.socket):
            cut.add(self._connection)
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RD)


class _Bounded(_Timed):
    """A body without a length, counted while it is read; its deadline moves with its size."""

    def __init__(self, environ: Environ, limit: int) -> None:
        super().__init__(environ, size=0)
        self._limit = limit

    def read(self, size: int | None = -1, /) -> bytes:
        # One byte over the limit is enough to know.
        most = self._limit - self._size + 1
        wanted = most if size is None or size < 0 else min(size, most)
        read = bytearray()
        try:
            while len(read) < wanted and (data := self._piece(min(wanted - len(read), PIECE))):
                read += data
                self._size += len(data)
        except ParseException:
            raise MalformedRequest("The chunks of the body could not be read.") from None
        if self._size > self._limit:
            raise BodyTooLarge(self._limit)
        return bytes(read)


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
    # The last charset applies. Django ignores an unknown one, and the JSON parser refuses it.
    return f"{content_type}; charset={'utf-8' if charset == 'us-ascii' else 'unsupported'}"


def _problem_of(request: HttpRequest) -> Problem | None:
    meta = request.META
    length, chunked = meta.get("CONTENT_LENGTH") or "", meta.get("HTTP_TRANSFER_ENCODING")
    if "\0" in request.path_info or "%00" in meta.get("QUERY_STRING", ""):
        # No text column can hold a NUL, so such an address must not reach a query.
        return MalformedRequest("An address cannot contain a NUL character.")
    if isinstance(meta.get("wsgi.input"), _Bounded) or not (length or chunked):
        return None
    if not length:
        return MalformedRequest("Send the body with a Content-Length.")
    if chunked or not (length.isascii() and length.isdecimal()):
        return MalformedRequest("The length of the body is not clear.")
    path = request.path_info
    return BodyTooLarge(limit_of(path)) if is_too_large(length, path) else None
