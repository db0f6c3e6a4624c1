"""The id of every request: the caller's ``X-Request-ID`` if it is well-formed, else a new one.

The answer, every problem and, through :func:`current`, every log line written during the request carry it.
"""

import re
from contextvars import ContextVar

from django.http import HttpRequest

from config.platform.db.uuid7 import timed_uuid

HEADER = "X-Request-ID"
SANE = re.compile(r"[A-Za-z0-9._-]{8,64}")

_current: ContextVar[str] = ContextVar("request_id", default="")


def begin(request: HttpRequest) -> str:
    """Sets and returns the id of a new request."""
    received = request.META.get("HTTP_X_REQUEST_ID", "")
    named = received if SANE.fullmatch(received) else str(timed_uuid())
    request.id = named  # type: ignore[attr-defined]
    # Not reset afterwards: the server may still log about this answer, and the thread's next request sets its own.
    _current.set(named)
    return named


def current() -> str:
    """Returns the id of the current request, or an empty string outside of any."""
    return _current.get()


def id_of(request: HttpRequest) -> str:
    """Returns the id of a given request."""
    return getattr(request, "id", "") or current()
