"""One id and one log line for every request.

The id is the caller's ``X-Request-ID`` where that is a sane one, else a new one. It stands in the answer, in
every problem and, through :func:`current`, in every log line that is written while the request is served,
also by rules that know no request. The line names the route and never the path, which may carry a token.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from http import HTTPStatus
from time import perf_counter

from django.http import (
    FileResponse,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    StreamingHttpResponse,
)
from django.utils.functional import LazyObject

from config.db.uuid7 import timed_uuid
from config.middleware.client_address import address_of

HEADER = "X-Request-ID"
SANE = re.compile(r"[A-Za-z0-9._-]{8,64}")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})

log = logging.getLogger(__name__)
_current: ContextVar[str] = ContextVar("request_id", default="")


class RequestIdMiddleware:
    """Outermost: names the request, and says one line about it when its answer has been sent."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        started = perf_counter()
        given = request.META.get("HTTP_X_REQUEST_ID", "")
        request_id = given if SANE.fullmatch(given) else str(timed_uuid())
        request.id = request_id  # type: ignore[attr-defined]
        # Not taken back afterwards: what the server still says about this answer belongs to it, and the next
        # request of the same thread sets its own.
        _current.set(request_id)
        response = self.get_response(request)
        response[HEADER] = request_id
        if response.status_code == HTTPStatus.NOT_MODIFIED:
            # Django writes 0; RFC 9110, 8.6 wants the length of the full answer or none.
            del response["Content-Length"]
        _say_when_sent(request, response, started)
        return response


def current() -> str:
    """The id of the request that is being served, or an empty string outside of any."""
    return _current.get()


def id_of(request: HttpRequest) -> str:
    """A request's own id, whoever asks."""
    return getattr(request, "id", "") or current()


def route_of(request: HttpRequest) -> str:
    """The name of the route that a request was resolved to, or its pattern; ``-`` where it met none."""
    match = request.resolver_match
    if match is None:
        return "-"
    return match.view_name if match.url_name else match.route


class _Counted:
    """The chunks of a stream: how many bytes they were, and how they ended."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self.bytes = 0
        self.ended = "cut"

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except StopIteration:
            self.ended = "done"
            raise
        except BaseException:
            self.ended = "failed"
            raise
        self.bytes += len(chunk)
        return chunk

    def close(self) -> None:
        """What gives the chunks knows the answer that this is part of: together they would be garbage to be found."""
        self._chunks = iter(())


def _say_when_sent(request: HttpRequest, response: HttpResponseBase, started: float) -> None:
    """The server closes an answer when it has sent it, or when the client has left."""
    counted: _Counted | None = None
    # A file is left alone, so that the server can still hand it over by itself.
    if isinstance(response, StreamingHttpResponse) and not isinstance(response, FileResponse):
        counted = _Counted(response.streaming_content)  # type: ignore[arg-type]
        response.streaming_content = counted
    # Run once by close(), which then forgets it; not where this process is made to end in the middle of closing. A
    # close() of ours in place of Django's would be known to the answer that it knows, and each answer with all around
    # it wait for the collector of garbage.
    closers: list[Callable[[], object]] = response._resource_closers  # type: ignore[attr-defined]  # noqa: SLF001
    closers.append(lambda: _say(request, response, counted, started))


def _say(
    request: HttpRequest, response: HttpResponseBase, counted: _Counted | None, started: float
) -> None:
    try:
        facts = _facts(request, response, counted, started)
    except Exception:
        # Whoever closes an answer hears nothing of this.
        log.exception("request_without_facts")
    else:
        log.info("request", extra=facts)


def _facts(
    request: HttpRequest, response: HttpResponseBase, counted: _Counted | None, started: float
) -> dict[str, object]:
    return {
        "method": request.method if request.method in METHODS else "OTHER",
        "route": route_of(request),
        "status": response.status_code,
        "duration_ms": round((perf_counter() - started) * 1000, 1),
        "bytes": counted.bytes if counted else _size(response),
        "ended": _end_of(response, counted),
        "user": _user_of(request),
        "address": address_of(request),
    }


def _end_of(response: HttpResponseBase, counted: _Counted | None) -> str | None:
    """How a stream ended: by what its view knows, a callable ``how_ended`` of the answer, else by its chunks."""
    if counted is None:
        return None
    told = getattr(response, "how_ended", None)
    return (told() if told else None) or counted.ended


def _size(response: HttpResponseBase) -> int | None:
    if isinstance(response, HttpResponse):
        return len(response.content)
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _user_of(request: HttpRequest) -> object:
    """The id of whoever was found to be calling; nobody is looked up for the sake of a log line."""
    user = getattr(request, "user", None)
    if isinstance(user, LazyObject):
        user = getattr(request, "_cached_user", None)
    return getattr(user, "pk", None)
