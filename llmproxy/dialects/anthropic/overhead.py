"""Counts the prompt tokens that Anthropic adds to a caller's prompt."""

from collections.abc import Iterator
from typing import Any

from llmproxy.dialects.anthropic.turns import call_id
from llmproxy.prompts.estimates import text_tokens

# For tools and for a schema of the answer Anthropic adds a system prompt: up to 530 tokens, as documented.
TOOLS_PROMPT = 530


def prompt_overhead(members: dict[str, Any]) -> int:
    """The tokens, before the route's factor, that Anthropic adds to a call's own prompt."""
    calls_tools = any(message.get("tool_calls") for message in members["messages"])
    has_prompt = "tools" in members or "response_format" in members or calls_tools
    return TOOLS_PROMPT * has_prompt + _growth(list(_call_ids(members)))


def _growth(ids: list[str]) -> int:
    """The tokens that the translation of calls' ids adds to them; counted together, because counting pauses."""
    changed = [(given, sent) for given in ids if (sent := call_id(given)) != given]
    before, after = (
        (text_tokens(*texts) for texts in zip(*changed, strict=True)) if changed else (0, 0)
    )
    return max(0, after - before)


def _call_ids(members: dict[str, Any]) -> Iterator[str]:
    for message in members["messages"]:
        yield from (call["id"] for call in message.get("tool_calls") or ())
        if "tool_call_id" in message:
            yield message["tool_call_id"]
