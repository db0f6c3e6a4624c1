"""The end of a response: whether it has failed, and what of it is missing."""

from typing import Any

from llmproxy.dialects.ends import incomplete_reason
from llmproxy.dialects.failures import failure_within


def failure_in(response: dict[str, Any]) -> Any:
    """The error of a response, or the status or reason that says that it has failed; None without any."""
    found = failure_within(response, response.get("status"))
    return found or failure_within({}, _reason(response))


def say_what_is_missing(response: dict[str, Any]) -> bool:
    """Writes the reason for which a response is incomplete in OpenAI's words; returns whether it was in others."""
    given = _reason(response)
    known = incomplete_reason(given)
    if known == given:
        return False
    response["incomplete_details"]["reason"] = known
    return True


def _reason(response: dict[str, Any]) -> Any:
    details = response.get("incomplete_details")
    return details.get("reason") if isinstance(details, dict) else None
