"""RFC 9457 problems: the one shape in which this service says no.

A rule raises a small subclass of :class:`Problem` that stands beside it; an edge renders it. A problem
knows no framework, so rules may raise it without knowing that they are called over HTTP.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of an input: where (a JSON pointer), what (a word to grep for), and a sentence."""

    pointer: str
    code: str
    detail: str


# As many faults of one input as anyone mends at a time.
MAX_FAULTS = 20
# Whoever names a member may name it at any length, and every fault within repeats the name.
MAX_POINTER_PART = 100


def pointer(parts: Iterable[str | int]) -> str:
    """A JSON pointer (RFC 6901). Of a name of more than 100 characters it has the first 99, and an ellipsis."""
    return "".join(f"/{_shown(str(part)).replace('~', '~0').replace('/', '~1')}" for part in parts)


def _shown(part: str) -> str:
    return part if len(part) <= MAX_POINTER_PART else f"{part[: MAX_POINTER_PART - 1]}…"


class Problem(Exception):
    """A typed refusal.

    ``code`` is the typed error on the wire, ``status`` its HTTP status, ``title`` names the kind and
    ``detail`` is a sentence that a shell may show to a person. ``headers`` and ``members`` are added to
    the answer as they are.
    """

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    default_detail: ClassVar[str] = "Something went wrong on our side. Please try again."

    def __init__(
        self,
        detail: str | None = None,
        *,
        errors: Iterable[Fault] = (),
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        self.detail = detail or self.default_detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.members = members
        super().__init__(self.code)


class MalformedRequest(Problem):
    code = "malformed_request"
    status = 400
    title = "Malformed request"
    default_detail = "The request could not be read."


class InvalidRequest(Problem):
    code = "invalid_request"
    status = 400
    title = "Invalid request"
    default_detail = "Some members of the request are missing or wrong."


class NotAuthenticated(Problem):
    code = "not_authenticated"
    status = 401
    title = "Not signed in"
    default_detail = "This needs an access token."


class PermissionRefused(Problem):
    code = "permission_denied"
    status = 403
    title = "Permission denied"
    default_detail = "You may not do this."


class NotFound(Problem):
    code = "not_found"
    status = 404
    title = "Not found"
    default_detail = "There is nothing here."


class MethodNotAllowed(Problem):
    code = "method_not_allowed"
    status = 405
    title = "Method not allowed"
    default_detail = "This address does not take that method."


class NotAcceptable(Problem):
    code = "not_acceptable"
    status = 406
    title = "Not acceptable"
    default_detail = "This address cannot answer in a type that you accept."


class RequestTooLarge(Problem):
    code = "request_too_large"
    status = 413
    title = "Request too large"
    default_detail = "The request is larger than this address takes."


class UnsupportedMediaType(Problem):
    code = "unsupported_media_type"
    status = 415
    title = "Unsupported media type"
    default_detail = "Send the body as application/json."


class InternalError(Problem):
    """Anything that nobody foresaw."""


class RefusedUntil(Problem):
    """429 until an instant, given in seconds and as an instant. Subclasses say which limit it was."""

    code = "rate_limited"
    status = 429
    title = "Too many requests"
    default_detail = "That was a lot at once. Please wait a moment and try again."

    def __init__(
        self,
        detail: str | None = None,
        *,
        now: datetime,
        until: datetime,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        seconds = max(1, ceil((until - now).total_seconds()))
        super().__init__(
            detail,
            headers={"Retry-After": str(seconds), **(headers or {})},
            retry_after_iso=instant(until),
            **members,
        )


class ServiceUnavailable(Problem):
    """A part we need is away for the moment; ``retry_after`` in seconds."""

    code = "service_unavailable"
    status = 503
    title = "Service unavailable"
    default_detail = "The service is not available at the moment. Please try again shortly."

    def __init__(self, detail: str | None = None, *, retry_after: int = 5, **members: Any) -> None:
        headers = {"Retry-After": str(retry_after), **(members.pop("headers", None) or {})}
        super().__init__(detail, headers=headers, **members)


class NotConfigured(Problem):
    code = "not_configured"
    status = 503
    title = "Not configured"
    default_detail = "This part of the service has not been set up."


class ProviderRejected(Problem):
    """Somebody else's service, whom we asked on the caller's behalf, refused the request itself."""

    code = "provider_rejected"
    status = 400
    title = "The provider refused the request"
    default_detail = "The provider does not take this request as it is."


class ProviderError(Problem):
    code = "provider_error"
    status = 502
    title = "The provider failed"
    default_detail = "The provider did not answer properly. Please try again."


class ProviderUnavailable(Problem):
    code = "provider_unavailable"
    status = 503
    title = "The provider is not available"
    default_detail = "The provider is not available at the moment. Please try again shortly."


class ProviderTimeout(Problem):
    code = "provider_timeout"
    status = 504
    title = "The provider took too long"
    default_detail = "The provider took too long to answer. Please try again."


def instant(at: datetime) -> str:
    """An instant as the wire writes it: RFC 3339 in UTC, whole seconds unless it has parts, ``Z``."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
