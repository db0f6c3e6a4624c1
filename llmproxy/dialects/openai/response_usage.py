"""The tokens of a response: those that its ``usage`` reports, and the size of what was delivered."""

from collections.abc import Iterator
from typing import Any

from llmproxy.dialects.openai import usage as chat_usage
from llmproxy.dialects.protocol import TokenUsage
from llmproxy.dialects.reading import size_of

# The members of an item, and of a part of one, that hold text of the model.
_TEXTS = ("name", "arguments", "input", "text", "refusal")
_PARTS = ("content", "summary")
# What a call of a tool that OpenAI defines is to do.
_ACTIONS = ("action", "operation")


def reported(usage: Any) -> TokenUsage | None:
    """The token usage of a ``usage`` object, or None without one."""
    if not isinstance(usage, dict):
        return None
    given = {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "total_tokens": usage.get("total_tokens"),
        "prompt_tokens_details": usage.get("input_tokens_details"),
        "completion_tokens_details": usage.get("output_tokens_details"),
    }
    return chat_usage.reported(given)


def with_usage(response: dict[str, Any], known: TokenUsage) -> dict[str, Any]:
    """A response with these counts, beside the listed members of its usage."""
    given = response.get("usage")
    usage = given if isinstance(given, dict) else {}
    cached, reasoning = known.cached_input, known.reasoning
    response["usage"] = {
        **usage,
        "input_tokens": known.input,
        "input_tokens_details": {
            **(usage.get("input_tokens_details") or {}),
            "cached_tokens": cached,
        },
        "output_tokens": known.output,
        "output_tokens_details": {
            **(usage.get("output_tokens_details") or {}),
            "reasoning_tokens": reasoning,
        },
        "total_tokens": known.input + known.output,
    }
    return response


def _texts_in(action: Any) -> Iterator[str]:
    values = action.values() if isinstance(action, dict) else ()
    for value in values:
        yield from (
            each
            for each in (value if isinstance(value, list) else [value])
            if isinstance(each, str)
        )


def item_size(item: dict[str, Any]) -> int:
    """The bytes of an item that a provider counts as output. The length of encrypted reasoning is unknown."""
    size = sum(size_of(item[name]) for name in _TEXTS if isinstance(item.get(name), str))
    size += sum(size_of(text) for name in _ACTIONS for text in _texts_in(item.get(name)))
    return size + sum(item_size(part) for name in _PARTS for part in item.get(name) or ())
