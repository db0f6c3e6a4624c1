"""Gives every request an id and one log line.

The id is the caller's ``X-Request-ID`` if it is well-formed, else a new one. The answer, every problem and, through
:func:`current`, every log line written while the request is served carry it, also lines of rules that know no request.
The request's line names the route and never the path, which may carry a token.
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from http import HTTPStatus
from time import perf_counter

from django.contrib.auth import SESSION_KEY
from django.http import FileResponse, HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils.functional import LazyObject

from config.db.uuid7 import timed_uuid
from config.middleware.client_address import address_of

HEADER = "X-Request-ID"
SANE = re.compile(r"[A-Za-z0-9._-]{8,64}")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})

log = logging.getLogger(__name__)
_current: ContextVar[str] = ContextVar("request_id", default="")


class RequestIdMiddleware:
    """The outermost middleware: names the request, and writes its line once the answer, or its stream, has ended."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        started = perf_counter()
        given = request.META.get("HTTP_X_REQUEST_ID", "")
        request_id = given if SANE.fullmatch(given) else str(timed_uuid())
        request.id = request_id  # type: ignore[attr-defined]
        # Not taken back afterwards: what the server still logs about this answer belongs to it, and the next
        # request of the same thread sets its own.
        _current.set(request_id)
        response = self.get_response(request)
        response[HEADER] = request_id
        if response.status_code == HTTPStatus.NOT_MODIFIED:
            # Django writes 0; RFC 9110, 8.6 wants the length of the full answer or none.
            del response["Content-Length"]
        # A file is no stream here: the server must be able to hand it over by itself.
        if isinstance(response, StreamingHttpResponse) and not isinstance(response, FileResponse):
            response.streaming_content = _Stream(request, response, started)
        else:
            length = response.headers.get("Content-Length", "")
            size = int(length) if length.isdecimal() else len(getattr(response, "content", b""))
            _log(request, response, started, size, None)
        return response


def current() -> str:
    """The id of the request that is being served, or an empty string outside of any."""
    return _current.get()


def id_of(request: HttpRequest) -> str:
    """Returns the id of a given request."""
    return getattr(request, "id", "") or current()


def route_of(request: HttpRequest) -> str:
    """The name of the route that a request was resolved to, or its pattern; ``-`` where it met none."""
    match = request.resolver_match
    if match is None:
        return "-"
    return match.view_name if match.url_name else match.route


class _Stream:
    """The chunks of a streamed answer, which counts them and writes the line when Django closes it."""

    def __init__(
        self, request: HttpRequest, response: StreamingHttpResponse, started: float
    ) -> None:
        self._facts = request, response, started
        self._chunks: Iterator[bytes] = iter(response.streaming_content)  # type: ignore[arg-type]
        self._size = 0
        self._ended = "cut"

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except StopIteration:
            self._ended = "done"
            raise
        except BaseException:
            self._ended = "failed"
            raise
        self._size += len(chunk)
        return chunk

    def close(self) -> None:
        """Django calls it once, after the answer was sent or its client has left."""
        request, response, started = self._facts
        # The view may know better how its stream ended.
        reported: Callable[[], str | None] = getattr(response, "how_ended", lambda: None)
        _log(request, response, started, self._size, reported() or self._ended)


def _log(
    request: HttpRequest, response: HttpResponseBase, started: float, size: int, ended: str | None
) -> None:
    try:
        facts = {
            "method": request.method if request.method in METHODS else "OTHER",
            "route": route_of(request),
            "status": response.status_code,
            "duration_ms": round((perf_counter() - started) * 1000, 1),
            "bytes": size,
            "ended": ended,
            "user": _user_of(request),
            "address": address_of(request),
        }
        log.info("request", extra=facts)
    except Exception:
        # Django drops whatever is raised while it closes an answer.
        log.exception("request_without_facts")


def _user_of(request: HttpRequest) -> object:
    """Returns the id of the caller where the request has found it; a log line looks nobody up."""
    user = getattr(request, "user", None)
    if isinstance(user, LazyObject):
        # Django's, who is in the session.
        return request.session.get(SESSION_KEY) if request.session.accessed else None
    return getattr(user, "pk", None)
