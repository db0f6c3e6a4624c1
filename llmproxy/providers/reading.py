"""What providers say alike, whatever their dialect: counts, and the words and headers of a refusal."""

from collections.abc import Mapping
from json import loads
from typing import Any, TypeGuard

from django.conf import settings

MAX_DETAIL = 500
MAX_RETRY_AFTER = 86_400


def is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def said(body: bytes) -> str | None:
    """The provider's own words on a refused request, without anything that names the credential."""
    try:
        message = loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    key = settings.LLM_API_KEY()
    if not isinstance(message, str) or not message or key in message:
        return None
    return message[:MAX_DETAIL]


def wait_of(headers: Mapping[str, str]) -> dict[str, str] | None:
    """The ``Retry-After`` of a refusal, in seconds, where it is a sane one."""
    after = headers.get("Retry-After", "")
    is_sane = after.isdecimal() and int(after) <= MAX_RETRY_AFTER
    return {"Retry-After": after} if is_sane else None
