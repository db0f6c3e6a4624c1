"""Reads what is common to all providers: JSON, token counts, and the message and headers of a refusal."""

import logging
import re
import time
from collections.abc import Mapping
from json import JSONDecoder, loads
from math import isfinite
from typing import Any, TypeGuard

import orjson
from django.conf import settings

from llmproxy.providers.cleaning import cleaned
from llmproxy.providers.protocol import TokenUsage
from llmproxy.upstream.retries import retry_after

log = logging.getLogger(__name__)

MAX_RETRY_AFTER = 86_400
# A larger count is a mistake and treated as missing.
MOST_TOKENS = 1_000_000_000
# The detail of a refusal that comes without a message.
REFUSED = {413: "This is more than the model takes at once. Please send less."}
# The statuses with which a provider refuses our credential or account.
NOT_US = frozenset({401, 402, 403})
# The codes of errors about either, whatever their status; no caller can fix those.
_OF_US = frozenset({
    "invalid_api_key", "authentication_error", "permission_error", "access_terminated", "account_deactivated",
    "invalid_organization", "mismatched_organization", "mismatched_project", "organization_restricted",
    "insufficient_quota", "billing_error", "billing_hard_limit_reached", "billing_not_active",
})  # fmt: skip
_SAID_OF_US = re.compile(
    r"credit balance|usage limits|billing hard limit"
    r"|\bapi[ _-]?key\b.{0,30}\b(?:not valid|invalid|incorrect|expired|revoked)\b"
    r"|\b(?:invalid|incorrect|expired|revoked)\b.{0,30}\bapi[ _-]?key\b",
    re.IGNORECASE | re.DOTALL,
)
# Seconds after which a process logs again that its credential is refused; a new credential is logged at once.
SAID_AGAIN_AFTER = 3_600.0
_QUOTED = re.compile(r"(?<!\w)(['\"`])[^'\"`]*\1(?!\w)")
_last_said: dict[str, Any] = {"key": "", "at": 0.0}


def read(data: bytes) -> tuple[Any, bool]:
    """Parses JSON leniently; returns the value and whether the bytes are valid JSON for callers.

    Some servers send halves of a surrogate pair in two pieces, which is still JSON; some send NaN or infinity, which is
    not, and becomes null. Others send such a half as bytes, or a byte order mark, which clients do not read. Integers
    beyond 64 bits lose digits. Raises ``ValueError`` or ``RecursionError``.
    """
    try:
        return orjson.loads(data), True
    except orjson.JSONDecodeError:
        is_json = data.isascii() and b"NaN" not in data and b"Infinity" not in data
        return read_exactly(data), is_json


def read_exactly(data: bytes) -> Any:
    """The same with integers of any size."""
    return _decode(data.decode("utf-8", "surrogatepass").removeprefix("\ufeff"))


def _finite(digits: str) -> float | None:
    return number if isfinite(number := float(digits)) else None


_decode = JSONDecoder(parse_constant=lambda _: None, parse_float=_finite).decode


def note_refused(status: int) -> None:
    """Logs that the provider refuses our credential: once an hour, not once a call."""
    key, now = settings.LLM_API_KEY(), time.monotonic()
    if _last_said["key"] != key or now - _last_said["at"] >= SAID_AGAIN_AFTER:
        _last_said.update(key=key, at=now)
        log.error("provider_refuses_credential", extra={"status": status})


def refuses_us(body: bytes) -> bool:
    """Whether a refusal is about our key or account, whatever its status: some servers answer 400."""
    try:
        error = _error_of(body)
        kinds = {str(error.get("code")), str(error.get("type"))}
        # Quoted parts repeat the caller's text.
        said = _QUOTED.sub("", error["message"])
        return bool(kinds & _OF_US) or bool(_SAID_OF_US.search(said))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False


def usage_of(known: TokenUsage) -> dict[str, Any]:
    """Tokens in OpenAI's shape."""
    return {
        "prompt_tokens": known.input,
        "completion_tokens": known.output,
        "total_tokens": known.input + known.output,
        "prompt_tokens_details": {"cached_tokens": known.cached_input},
        "completion_tokens_details": {"reasoning_tokens": known.reasoning},
    }


def is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def said(body: bytes) -> str | None:
    """The provider's message on a refused request, without anything that names the credential."""
    try:
        message = _error_of(body)["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return cleaned(message) if isinstance(message, str) and message else None


def _error_of(body: bytes) -> Any:
    answer = loads(body)
    # A server of more than one dialect puts its errors into a list.
    return (answer[0] if isinstance(answer, list) else answer)["error"]


def wait_of(headers: Mapping[str, str]) -> dict[str, str] | None:
    """The ``Retry-After`` of a refusal, in seconds, where it is a sane one."""
    after = retry_after(headers)
    return None if after is None or after > MAX_RETRY_AFTER else {"Retry-After": str(after)}
