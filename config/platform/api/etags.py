"""Entity tags and ``If-None-Match``.

The other conditional headers do not apply: no resource has a date, and no resource with a tag can be changed.
"""

from hashlib import blake2b
from typing import Protocol

from django.conf import settings
from django.http import HttpResponse, HttpResponseNotModified
from django.utils.http import parse_etags

# Headers of the 200 answer that a 304 repeats (RFC 9110, 15.4.5).
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
        # The fast path: nearly every request of a shell sends one tag or none.
        return named is not None
    tags = parse_etags(named)
    return "*" in tags or _weak(etag) in map(_weak, tags)


def unless_known(request: Conditional, response: HttpResponse) -> HttpResponse:
    """Returns the response, which has an ETag, or a 304 if the caller has it already."""
    if not is_known(request, response.headers["ETag"]):
        return response
    short = HttpResponseNotModified()
    for name in REPEATED:
        if name in response.headers:
            short.headers[name] = response.headers[name]
    return short


def _weak(tag: str) -> str:
    """Removes the weak prefix, which a weak comparison ignores (RFC 9110, 8.8.3.2)."""
    return tag.removeprefix("W/")
