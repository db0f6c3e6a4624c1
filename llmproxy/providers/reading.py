"""What providers say alike, whatever their dialect: counts, and the words and headers of a refusal."""

import re
from collections.abc import Mapping
from json import loads
from typing import Any, TypeGuard

from django.conf import settings

MAX_DETAIL = 500
MAX_RETRY_AFTER = 86_400
# More than this no call costs; it is a mistake, and counts as no report.
MOST_TOKENS = 1_000_000_000
# Names of accounts, projects and keys, and addresses: what a provider may say of us and not of the request.
OURS = re.compile(r"https?://\S+|\b(?:sk|pk|rk|org|proj|key|acct)[-_][\w-]{4,}", re.IGNORECASE)


def is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def said(body: bytes) -> str | None:
    """The provider's own words on a refused request, without anything that names the credential."""
    try:
        message = loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    key = settings.LLM_API_KEY()
    if not isinstance(message, str) or not message or key in message:
        return None
    return OURS.sub("…", message)[:MAX_DETAIL]


def wait_of(headers: Mapping[str, str]) -> dict[str, str] | None:
    """The ``Retry-After`` of a refusal, in seconds, where it is a sane one."""
    after = headers.get("Retry-After", "")
    is_sane = (
        after.isdecimal()
        and len(after) <= len(str(MAX_RETRY_AFTER))
        and int(after) <= MAX_RETRY_AFTER
    )
    return {"Retry-After": after} if is_sane else None
