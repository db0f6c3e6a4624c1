"""Prompt tokens that Anthropic adds to what a caller said, so that the estimate of a call stays a bound."""

from collections.abc import Iterator
from typing import Any

from llmproxy.estimates import text_tokens
from llmproxy.providers.anthropic.turns import call_id

# Tools and a schema for the answer bring a system prompt of the provider's own: up to 530 tokens where it is
# documented, and a third more with the tokenizer of newer models.
TOOLS_PROMPT = 800
# The largest image that newer models look at in full.
LARGEST_IMAGE = 4_784


def prompt_overhead(members: dict[str, Any]) -> int:
    """The most tokens beyond :func:`llmproxy.estimates.prompt_tokens` that a call may be charged for its prompt."""
    has_prompt = "tools" in members or "response_format" in members or _calls_tools(members)
    return TOOLS_PROMPT * has_prompt + sum(map(_added_to, _ids(members)))


def _added_to(given: str) -> int:
    sent = call_id(given)
    return 0 if sent == given else max(0, text_tokens(sent) - text_tokens(given))


def _ids(members: dict[str, Any]) -> Iterator[str]:
    for message in members["messages"]:
        yield from (call["id"] for call in message.get("tool_calls") or ())
        if "tool_call_id" in message:
            yield message["tool_call_id"]


def _calls_tools(members: dict[str, Any]) -> bool:
    return any(message.get("tool_calls") for message in members["messages"])
