"""Reads the ``usage`` of a chat completion, and writes the one that callers get."""

from typing import Any

from llmproxy.dialects.protocol import TokenUsage
from llmproxy.dialects.reading import count_of, usage_of, whole, without_costs

# What reaches callers: counts, and how long a server took.
MEMBERS = frozenset({
    "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details",
    "input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details", "cached_tokens",
    "reasoning_tokens", "prompt_cache_hit_tokens", "prompt_cache_miss_tokens", "cache_creation_input_tokens",
    "cache_read_input_tokens", "citation_tokens", "num_search_queries", "num_sources_used", "search_context_size",
    "queue_time", "prompt_time", "completion_time", "total_time",
})  # fmt: skip


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
    beside = (count_of(usage.get("total_tokens")) or 0) - prompt - completion
    beside = max(beside, reasoning if reasoning > completion else 0)
    return TokenUsage(
        input=prompt,
        output=completion + beside,
        cached_input=_detail(usage, "prompt_tokens_details", "cached_tokens"),
        reasoning=reasoning,
        cache_write=max(_detail(usage, "prompt_tokens_details", each) for each in _WRITTEN),
    )


def listed(usage: dict[str, Any], *, passes_all: bool = False) -> dict[str, Any]:
    """The members of a provider's usage that reach callers, in whole numbers."""
    kept: dict[str, Any] = whole(without_costs(usage))
    return kept if passes_all else {name: kept[name] for name in kept if name in MEMBERS}


def told(usage: dict[str, Any], known: TokenUsage, *, passes_all: bool = False) -> dict[str, Any]:
    """A provider's usage for callers: the members that reach them, with our counts."""
    usage = listed(usage, passes_all=passes_all)
    for name, value in usage_of(known).items():
        if not isinstance(value, dict):
            usage[name] = value
        elif isinstance(given := usage.get(name), dict):
            usage[name] = {**given, **value}
        elif any(value.values()):
            usage[name] = value
    return usage


def _detail(usage: dict[str, Any], group: str, name: str) -> int:
    """A count of a group, or of the usage itself, where Moonshot and Perplexity write it."""
    details = usage.get(group)
    within = count_of(details.get(name)) if isinstance(details, dict) else None
    return within or count_of(usage.get(name)) or 0
