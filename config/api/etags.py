"""What need not be sent again. Of the conditions of HTTP only ``If-None-Match`` is for who reads.

The others guard changes, and nothing that has a tag here is changed over HTTP; nor has it a date that they could name.
"""

from typing import Protocol

from django.http import HttpResponse, HttpResponseNotModified
from django.utils.http import parse_etags

# What a whole answer would say as well (RFC 9110, 15.4.5).
SAID_TOO = ("Cache-Control", "Content-Location", "ETag", "Expires", "Vary")


class Asked(Protocol):
    """A request, of Django or of REST framework."""

    @property
    def META(self) -> dict[str, str]: ...  # noqa: N802 - Django's name


def is_known(request: Asked, etag: str) -> bool:
    """Whether who asks by GET or HEAD has what has this tag."""
    named = request.META.get("HTTP_IF_NONE_MATCH")
    if named is None or named == etag:
        # As nearly every shell asks.
        return named is not None
    tags = parse_etags(named)
    return "*" in tags or _weak(etag) in map(_weak, tags)


def unless_known(request: Asked, response: HttpResponse) -> HttpResponse:
    """A response with an ETag, or 304 in its place."""
    if not is_known(request, response.headers["ETag"]):
        return response
    short = HttpResponseNotModified()
    for name in SAID_TOO:
        if name in response.headers:
            short.headers[name] = response.headers[name]
    return short


def _weak(tag: str) -> str:
    """Tags are compared without their mark of weakness: a reader has what is as good."""
    return tag.removeprefix("W/")
