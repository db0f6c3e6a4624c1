"""The usage of a message as its caller sees it: the provider's own where it was believed."""

from typing import Any

from llmproxy.dialects.anthropic.answer import reported
from llmproxy.dialects.protocol import TokenUsage


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
