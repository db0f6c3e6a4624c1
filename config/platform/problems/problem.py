"""RFC 9457 problems, the one shape of this service's errors.

A rule raises a small subclass of :class:`Problem`, defined beside it; an edge renders it. A problem depends on no
framework, so that rules need not know HTTP.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any, ClassVar, Self


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of an input: where (a JSON pointer), what (a word to grep for), and a sentence."""

    pointer: str
    code: str
    detail: str


MAX_FAULTS = 20
# A member's name may have any length, and every fault within it repeats the name.
MAX_POINTER_PART = 100


def pointer(parts: Iterable[str | int]) -> str:
    """Returns a JSON pointer (RFC 6901); shortens names of more than 100 characters with an ellipsis."""
    return "".join(f"/{_shown(str(part)).replace('~', '~0').replace('/', '~1')}" for part in parts)


def _shown(part: str) -> str:
    return part if len(part) <= MAX_POINTER_PART else f"{part[: MAX_POINTER_PART - 1]}…"


class Problem(Exception):
    """A typed error.

    ``code`` is its name on the wire, ``title`` names the kind, and ``detail`` is a sentence that a shell may show to a
    person. ``headers`` and ``members`` are added to the answer unchanged. ``sdk_code`` is the code that OpenAI's SDKs
    expect where it differs from ``code``, and ``sdk_details`` are the details that Anthropic's read. ``about`` is for
    operators and not part of the answer: the subject of the error, where only its rule can name it.
    """

    code: ClassVar[str] = "internal_error"
    sdk_code: ClassVar[str | None] = None
    sdk_details: ClassVar[Mapping[str, Any]] = {}
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
        self.about: dict[str, Any] = {}
        super().__init__(self.code)

    def concerning(self, **about: Any) -> Self:
        """Returns this problem with facts for operators."""
        self.about |= about
        return self


def known_problems() -> dict[str, type[Problem]]:
    """Returns every loaded problem by code; the most general one where several share a code."""
    known: dict[str, type[Problem]] = {}
    kinds = [Problem]
    for kind in kinds:
        known.setdefault(kind.code, kind)
        kinds.extend(kind.__subclasses__())
    return dict(sorted(known.items()))


def titles() -> dict[str, str]:
    """Returns the titles of the known problems by code."""
    return {code: kind.title for code, kind in known_problems().items()}


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
    default_detail = "This address needs an access token."


class PermissionRefused(Problem):
    code = "permission_denied"
    status = 403
    title = "Permission denied"
    default_detail = "You do not have permission for this."


class NotFound(Problem):
    code = "not_found"
    status = 404
    title = "Not found"
    default_detail = "Nothing was found at this address."


class MethodNotAllowed(Problem):
    code = "method_not_allowed"
    status = 405
    title = "Method not allowed"
    default_detail = "This address does not allow that method."


class NotAcceptable(Problem):
    code = "not_acceptable"
    status = 406
    title = "Not acceptable"
    default_detail = "This address has no answer in a media type that you accept."


class RequestTimeout(Problem):
    code = "request_timeout"
    status = 408
    title = "Request timeout"
    default_detail = "The body of the request did not arrive in time. Please try again."


class RequestTooLarge(Problem):
    code = "request_too_large"
    status = 413
    title = "Request too large"
    default_detail = "The request is larger than this address allows."


class AddressTooLong(Problem):
    code = "address_too_long"
    status = 414
    title = "Address too long"
    default_detail = "The address of this request is too long: about 8,000 characters are read."


class ExpectationFailed(Problem):
    code = "expectation_failed"
    status = 417
    title = "Expectation failed"
    default_detail = "The only supported Expect header is 100-continue."


class HeadersTooLarge(Problem):
    code = "headers_too_large"
    status = 431
    title = "Headers too large"
    default_detail = "A header of this request is too long, or there are more than a hundred."


class NotImplementedHere(Problem):
    code = "not_implemented"
    status = 501
    title = "Not implemented"
    default_detail = "The body has an unknown transfer coding; send it plain or chunked."


class UnsupportedMediaType(Problem):
    code = "unsupported_media_type"
    status = 415
    title = "Unsupported media type"
    default_detail = "Send the body as application/json."


class InternalError(Problem):
    """An unexpected error."""


class RefusedUntil(Problem):
    """A refusal until an instant, in seconds and as a time. Subclasses name the limit; most are a 429."""

    code = "rate_limited"
    status = 429
    title = "Too many requests"
    default_detail = "Too many requests. Please wait a moment and try again."

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
    """A part of the service is away for the moment; ``retry_after`` is in seconds."""

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
    """A third party's service refused the request that this service passed on."""

    code = "provider_rejected"
    status = 400
    title = "The provider refused the request"
    default_detail = "The provider does not accept this request."


class ProviderError(Problem):
    code = "provider_error"
    status = 502
    title = "The provider failed"
    default_detail = "The provider's answer could not be used. Please try again."


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
    """Writes an instant as RFC 3339 in UTC with ``Z``, and with fractions only if it has any."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
