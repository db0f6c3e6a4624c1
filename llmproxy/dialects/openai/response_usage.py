"""The tokens of a response: its ``usage`` for callers, and the size of what was delivered."""

from typing import Any

from llmproxy.dialects.passing import text_size
from llmproxy.dialects.protocol import TokenUsage

# The members of an item whose parts hold text.
_PARTS = frozenset({"content", "summary"})
# Those of an item, or of a part of one, that are no output. The length of encrypted reasoning is unknown.
_NO_OUTPUT = frozenset({
    "id", "type", "status", "role", "phase", "call_id", "namespace", "caller", "created_by", "environment",
    "encrypted_content", "annotations", "logprobs",
})  # fmt: skip
# The members of a response that are no output, or counted by themselves: most repeat the request.
NO_TEXT = frozenset({
    "id", "object", "created_at", "completed_at", "status", "background", "conversation", "error", "incomplete_details",
    "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model", "moderation", "output", "output_text",
    "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "temperature", "text",
    "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "usage", "user", "context_management",
    "content_filters",
})  # fmt: skip


def with_usage(response: dict[str, Any], known: TokenUsage) -> None:
    """Writes these counts into a response, beside the other members of its usage."""
    usage = _object(response.get("usage"))
    cached, reasoning = known.cached_input, known.reasoning
    written = {"cache_write_tokens": known.cache_write} if known.cache_write else {}
    response["usage"] = {
        **usage,
        "input_tokens": known.input,
        "input_tokens_details": {
            **_object(usage.get("input_tokens_details")),
            "cached_tokens": cached,
            **written,
        },
        "output_tokens": known.output,
        "output_tokens_details": {
            **_object(usage.get("output_tokens_details")),
            "reasoning_tokens": reasoning,
        },
        "total_tokens": known.input + known.output,
    }


def _object(given: Any) -> dict[str, Any]:
    return given if isinstance(given, dict) else {}


def item_size(item: dict[str, Any]) -> int:
    """The bytes of an item that a provider counts as output."""
    return sum(
        sum(map(item_size, value or ())) if name in _PARTS else text_size(value)
        for name, value in item.items()
        if name not in _NO_OUTPUT
    )
