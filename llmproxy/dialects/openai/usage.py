"""Writes the ``usage`` of a chat completion that callers get."""

from typing import Any

from llmproxy.dialects.passing import without_costs
from llmproxy.dialects.protocol import TokenUsage
from llmproxy.dialects.reading import usage_of, whole


def usage_for_caller(usage: dict[str, Any], known: TokenUsage) -> dict[str, Any]:
    """A provider's usage without costs, in whole numbers and with our counts."""
    written: dict[str, Any] = whole(without_costs(usage))
    for name, value in usage_of(known).items():
        if not isinstance(value, dict):
            written[name] = value
        elif isinstance(given := written.get(name), dict):
            written[name] = {**given, **value}
        elif any(value.values()):
            written[name] = value
    return written
