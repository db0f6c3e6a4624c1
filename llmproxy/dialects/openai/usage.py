"""Reads the ``usage`` of a chat completion, and writes the one that callers get."""

from typing import Any

from llmproxy.dialects.passing import without_costs
from llmproxy.dialects.protocol import TokenUsage
from llmproxy.dialects.reading import count_of, usage_of, whole

# How servers name what they read from a cache: OpenAI and most, DeepSeek.
_READ = ("cached_tokens", "prompt_cache_hit_tokens")
# How servers name what they wrote to a cache: OpenAI and OpenRouter, LiteLLM, Alibaba.
_WRITTEN = ("cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens")


def reported(usage: Any) -> TokenUsage | None:
    """The token usage of a ``usage`` object, or None without one. An explicit zero is a report.

    Output includes reasoning, except where a server (xAI's, Google's, Perplexity's) reports it beside: then the total
    is above both counts, or the reasoning above the output.
    """
    if not isinstance(usage, dict):
        return None
    prompt, completion = (
        count_of(usage.get("prompt_tokens")),
        count_of(usage.get("completion_tokens")),
    )
    if prompt is None or completion is None:
        return None
    reasoning = _detail(usage, "completion_tokens_details", "reasoning_tokens")
    cached = max(_detail(usage, "prompt_tokens_details", each) for each in _READ)
    if cached > prompt:
        # Some gateways to Anthropic's API report it beside, as that does.
        prompt += cached
    beside = (count_of(usage.get("total_tokens")) or 0) - prompt - completion
    beside = max(beside, reasoning if reasoning > completion else 0)
    return TokenUsage(
        input=prompt,
        output=completion + beside,
        cached_input=cached,
        reasoning=reasoning,
        cache_write=max(_detail(usage, "prompt_tokens_details", each) for each in _WRITTEN),
    )


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


def _detail(usage: dict[str, Any], group: str, name: str) -> int:
    """A count of a group, or of the usage itself, where Moonshot and Perplexity write it."""
    details = usage.get(group)
    within = count_of(details.get(name)) if isinstance(details, dict) else None
    return within or count_of(usage.get(name)) or 0
