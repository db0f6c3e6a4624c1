"""Writes one log line per request, once its answer or stream has ended.

The line names the route and never the path, which may contain a token.
"""

import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from http import HTTPStatus
from time import perf_counter
from typing import NamedTuple

from django.contrib.auth import SESSION_KEY
from django.http import FileResponse, HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from django.utils.functional import LazyObject

from config.platform.problems.problem import Problem
from config.platform.request.client_address import address_of
from config.platform.request.request_id import id_of
from config.platform.request.routes import route_of


class Refused(NamedTuple):
    """A request that was answered with a problem. ``route``: as in the log line. ``user``: the id of its caller."""

    problem: Problem
    path: str
    route: str
    user: object
    address: str
    request_id: str
    at: datetime


# Callbacks for each refused request, before its answer is sent, so they must be quick; composition registers them.
refused: list[Callable[[Refused], object]] = []
# Likewise, for route, status and seconds of each request.
answered: list[Callable[[str, int, float], object]] = []
# Likewise, for each request as its answer begins.
begun: list[Callable[[HttpRequest], object]] = []

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})

log = logging.getLogger(__name__)


def log_when_sent(request: HttpRequest, response: HttpResponseBase, started: float) -> None:
    """Logs a request at once, or a streamed answer when it has ended."""
    for note in begun:
        note(request)
    if response.status_code == HTTPStatus.NOT_MODIFIED:
        # Django writes 0; RFC 9110, 8.6 allows the length of the full answer or none.
        del response.headers["Content-Length"]
    # A file is not wrapped, so that the server can use sendfile.
    if isinstance(response, StreamingHttpResponse) and not isinstance(response, FileResponse):
        response.streaming_content = _Stream(request, response, started)
    else:
        length = response.headers.get("Content-Length", "")
        size = int(length) if length.isdecimal() else len(getattr(response, "content", b""))
        _log(request, response, started, size, None)


class _Stream:
    """Wraps the chunks of a streamed answer; counts bytes, and logs the request when Django closes it."""

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
        """Logs the request. Django calls it once, after the answer was sent or its client has disconnected."""
        request, response, started = self._facts
        # They refer to the answer, which refers to this: a cycle that would keep everything of a call alive.
        del self._facts, self._chunks
        # The view may know more precisely how its stream ended.
        reported: Callable[[], str | None] = getattr(response, "how_ended", lambda: None)
        _log(request, response, started, self._size, reported() or self._ended)


def _log(
    request: HttpRequest, response: HttpResponseBase, started: float, size: int, ended: str | None
) -> None:
    try:
        # Its traceback refers to the whole request, and would form a cycle with the answer that refers to it.
        problem: Problem | None = vars(response).pop("problem", None)
        seconds, route = perf_counter() - started, route_of(request)
        facts = {
            "method": request.method if request.method in METHODS else "OTHER",
            "route": route,
            "status": response.status_code,
            "duration_ms": round(seconds * 1000, 1),
            "bytes": size,
            "ended": ended,
            "problem": problem and problem.code,
            "user": _user_of(request),
            "address": address_of(request),
        }
        log.info("request", extra=facts)
        for measure in answered:
            measure(route, response.status_code, seconds)
        if problem is not None:
            user, address = facts["user"], facts["address"]
            place = (request.path_info, route, user, str(address), id_of(request))
            for note in refused:
                note(Refused(problem, *place, timezone.now()))
    except Exception:
        # Django drops errors raised while it closes an answer.
        log.exception("request_without_facts")


def _user_of(request: HttpRequest) -> object:
    """Returns the id of the caller if it is known already; a log line causes no query."""
    user = getattr(request, "user", None)
    if isinstance(user, LazyObject):
        # Django's user of a session, not yet loaded.
        return request.session.get(SESSION_KEY) if request.session.accessed else None
    return getattr(user, "pk", None)
