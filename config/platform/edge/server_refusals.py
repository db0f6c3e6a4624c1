"""Bodies for gunicorn's own refusals, before there is a request: problems, or pages for addresses of pages.

gunicorn decides which requests it refuses and with which status; this module replaces only the body.
"""

from collections.abc import Mapping

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from config.platform.edge.outermost import POLICY
from config.platform.problems.problem import (
    AddressTooLong,
    ExpectationFailed,
    HeadersTooLarge,
    InternalError,
    MalformedRequest,
    NotImplementedHere,
    PermissionRefused,
    Problem,
    RequestTimeout,
)
from config.platform.problems.rendering import PAGE_POLICY, PAGES, render
from config.platform.request import request_id

KINDS: Mapping[int, type[Problem]] = {
    kind.status: kind
    for kind in (
        PermissionRefused,
        RequestTimeout,
        AddressTooLong,
        ExpectationFailed,
        HeadersTooLarge,
        InternalError,
        NotImplementedHere,
    )
}
UNREADABLE = "The first line or a header of this request is not valid HTTP."


class Unsent:
    """A stand-in for a connection that records gunicorn's answer, of which only the status is used."""

    def __init__(self) -> None:
        self._kept = b""

    def sendall(self, data: bytes, flags: int = 0) -> None:
        self._kept += data

    def gettimeout(self) -> float:
        return 0.0

    @property
    def status(self) -> int | None:
        words = self._kept.split(b" ", 2)
        return int(words[1]) if len(words) > 1 else None


def refusal(status: int, *, head: bytes) -> bytes:
    """Returns the whole answer to a request whose known beginning is ``head``."""
    request = HttpRequest()
    request.path_info = _path(head)
    named = request_id.begin(request)
    problem = KINDS[status]() if status in KINDS else MalformedRequest(UNREADABLE)
    if request.path_info.startswith(PAGES):
        page = render_to_string("problem.html", {"problem": problem, "request_id": named})
        response = HttpResponse(page)
        response["Content-Security-Policy"] = PAGE_POLICY
    else:
        response = render(request, problem)
        response["Content-Security-Policy"] = POLICY
    response.status_code = status
    response[request_id.HEADER] = named
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "no-store"
    response["Content-Length"] = str(len(response.content))
    response["Connection"] = "close"
    return f"HTTP/1.1 {status} {response.reason_phrase}\r\n".encode() + response.serialize()


def _path(head: bytes) -> str:
    """Returns the path in the first line of a request, including ``GET https://host/path HTTP/1.1``."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    target = words[1].decode("latin-1") if len(words) > 1 else ""
    if "://" in target.partition("/")[0] + target[:9]:
        target = "/" + target.partition("://")[2].partition("/")[2]
    return target.partition("?")[0]
