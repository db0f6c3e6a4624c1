"""The usage of a message as its caller sees it: the provider's own where it was believed."""

from dataclasses import replace
from typing import Any

from llmproxy.dialects.anthropic.answer import reported
from llmproxy.dialects.protocol import TokenUsage


def usage_of(kept: dict[str, Any], charged: TokenUsage) -> dict[str, Any]:
    """The provider's usage where it is what is charged, and else the usage charged."""
    known = reported(kept)
    # All but the reasoning, which is a part of the output.
    if known is not None and replace(known, reasoning=charged.reasoning) == charged:
        return kept
    return {
        **kept,
        "input_tokens": charged.input - charged.cached_input - charged.cache_write,
        "cache_read_input_tokens": charged.cached_input,
        "cache_creation_input_tokens": charged.cache_write,
        "output_tokens": charged.output,
    }
