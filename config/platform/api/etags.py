"""Entity tags and ``If-None-Match``.

HTTP's other conditions need a date, which no resource has, or guard changes, which no resource with a tag allows.
"""

from hashlib import blake2b
from typing import Protocol

from django.conf import settings
from django.http import HttpResponse, HttpResponseNotModified
from django.utils.http import parse_etags

# The headers of the whole answer that a 304 repeats (RFC 9110, 15.4.5).
REPEATED = ("Cache-Control", "Content-Location", "ETag", "Expires", "Vary")


class Conditional(Protocol):
    """A request of Django or of REST framework."""

    @property
    def META(self) -> dict[str, str]: ...  # noqa: N802 - Django's name


def tag_of(*facts: object) -> str:
    """Returns the tag of an answer made from these facts by this version of the service."""
    return f'"{blake2b(repr((settings.VERSION, *facts)).encode(), digest_size=16).hexdigest()}"'


def is_known(request: Conditional, etag: str) -> bool:
    """Returns whether a GET or HEAD names this tag in ``If-None-Match``."""
    named = request.META.get("HTTP_IF_NONE_MATCH")
    if named is None or named == etag:
        # The fast path of nearly every request of a shell.
        return named is not None
    tags = parse_etags(named)
    return "*" in tags or _weak(etag) in map(_weak, tags)


def unless_known(request: Conditional, response: HttpResponse) -> HttpResponse:
    """Returns a response with an ETag, or a 304 in its place."""
    if not is_known(request, response.headers["ETag"]):
        return response
    short = HttpResponseNotModified()
    for name in REPEATED:
        if name in response.headers:
            short.headers[name] = response.headers[name]
    return short


def _weak(tag: str) -> str:
    """Removes the mark of weakness, which a comparison for reading ignores."""
    return tag.removeprefix("W/")
