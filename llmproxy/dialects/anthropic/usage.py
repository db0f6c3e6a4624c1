"""The usage of a message as its caller sees it: the provider's own where it was believed."""

from typing import Any

from llmproxy.dialects.anthropic.answer import reported
from llmproxy.dialects.protocol import TokenUsage
from llmproxy.dialects.reading import without_costs

MEMBERS = frozenset({
    "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "cache_creation",
    "output_tokens_details", "server_tool_use", "service_tier",
})  # fmt: skip


def listed(usage: Any, *, passes_all: bool = False) -> dict[str, Any]:
    """The members of a provider's usage that reach callers."""
    given: dict[str, Any] = without_costs(usage) if isinstance(usage, dict) else {}
    return {name: value for name, value in given.items() if passes_all or name in MEMBERS}


def usage_of(kept: dict[str, Any], charged: TokenUsage | None) -> dict[str, Any]:
    """The provider's usage where it is what is charged, and else the usage charged."""
    known = reported(kept)
    if charged is None or (
        known is not None
        and (known.input, known.output, known.cached_input, known.cache_write)
        == (charged.input, charged.output, charged.cached_input, charged.cache_write)
    ):
        return kept
    return {
        **kept,
        "input_tokens": charged.input - charged.cached_input - charged.cache_write,
        "cache_read_input_tokens": charged.cached_input,
        "cache_creation_input_tokens": charged.cache_write,
        "output_tokens": charged.output,
    }
