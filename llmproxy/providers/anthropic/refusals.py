"""Translates Anthropic's errors to problems, from the status of an answer or an event of a stream."""

from collections.abc import Mapping
from json import dumps
from typing import Any

from config.api.problems import Problem
from llmproxy.providers.protocol import (
    ProviderError,
    ProviderRejected,
    ProviderTimeout,
    ProviderUnavailable,
)
from llmproxy.providers.reading import (
    NOT_US,
    REFUSED,
    note_refused,
    refuses_us,
    said,
    wait_of,
)

# The request was at fault, not we: these are the caller's to mend.
_CALLERS_FAULT = frozenset({400, 404, 413, 422})
_BUSY = frozenset({408, 409, 429, 503, 529})
_STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> Problem:
    """The problem that an answer with another status than 200 is."""
    wait = wait_of(headers)
    if status in _CALLERS_FAULT:
        if not refuses_us(body):
            return ProviderRejected(said(body) or REFUSED.get(status))
        note_refused(status)
        return ProviderError(headers=wait)
    if status == 504:
        return ProviderTimeout(headers=wait)
    if status in NOT_US:
        note_refused(status)
    return ProviderUnavailable(headers=wait) if status in _BUSY else ProviderError(headers=wait)


def failure(event: dict[str, Any]) -> Problem:
    """The problem that an ``error`` event is: what its kind means as a status."""
    error = event.get("error")
    kind = error.get("type") if isinstance(error, dict) else None
    status = _STATUS_OF.get(kind, 500) if isinstance(kind, str) else 500
    return refusal(status, {}, dumps(event).encode())
