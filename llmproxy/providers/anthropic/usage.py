"""The usage of a message as its caller sees it: the provider's own where it was believed."""

from typing import Any

from llmproxy.providers.anthropic.answer import reported
from llmproxy.providers.protocol import TokenUsage

MEMBERS = frozenset({
    "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "cache_creation",
    "output_tokens_details", "server_tool_use", "service_tier",
})  # fmt: skip


def usage_of(usage: Any, charged: TokenUsage | None) -> dict[str, Any]:
    """The provider's usage where it is what is charged, and else the usage charged."""
    given = usage if isinstance(usage, dict) else {}
    kept = {name: value for name, value in given.items() if name in MEMBERS}
    known = reported(given)
    if charged is None or (
        known is not None
        and (known.input, known.output, known.cached_input)
        == (charged.input, charged.output, charged.cached_input)
    ):
        return kept
    return {
        **kept,
        "input_tokens": charged.input - charged.cached_input,
        "cache_read_input_tokens": charged.cached_input,
        "cache_creation_input_tokens": 0,
        "output_tokens": charged.output,
    }
