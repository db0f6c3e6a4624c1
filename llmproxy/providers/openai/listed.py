"""The members of answers that reach callers: OpenAI's, and those of other servers that clients read.

Of a provider whose members an operator has opened all reach them.
"""

from typing import Any

_ANSWER = frozenset({
    "id", "object", "created", "model", "choices", "usage", "service_tier", "system_fingerprint", "obfuscation",
    "moderation", "metadata", "request_id",
    # Of searches, filters and clocks.
    "citations", "search_results", "images", "videos", "related_questions", "prompt_filter_results", "x_groq",
    "provider", "time_info", "timings", "prompt_logprobs", "prompt_token_ids", "kv_transfer_params",
})  # fmt: skip
_CHOICE = frozenset({
    "index", "message", "delta", "finish_reason", "logprobs", "native_finish_reason", "stop_reason", "matched_stop",
    "token_ids", "content_filter_results", "content_filter_result", "content_filter_offsets", "seed", "error",
    "text",
})  # fmt: skip
# All of these may be sent back.
MESSAGE = frozenset({
    "role", "content", "refusal", "tool_calls", "function_call", "audio", "annotations", "name", "id",
    "reasoning", "reasoning_content", "reasoning_details", "extra_content", "thinking_blocks", "citations", "images",
    "provider_specific_fields", "executed_tools", "token_id", "phase",
})  # fmt: skip


def is_listed(answer: dict[str, Any]) -> bool:
    """Whether all members of an answer or chunk reach callers."""
    return _ANSWER.issuperset(answer) and all(map(_is_listed_choice, answer["choices"]))


def _is_listed_choice(choice: dict[str, Any]) -> bool:
    return _CHOICE.issuperset(choice) and MESSAGE.issuperset(_message(choice))


def drop_unlisted(answer: dict[str, Any]) -> None:
    """Takes the other members out."""
    _drop(answer, _ANSWER)
    for choice in answer["choices"]:
        _drop(choice, _CHOICE)
        _drop(_message(choice), MESSAGE)


def _message(choice: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = choice.get("delta") or choice.get("message") or {}
    return found


def _drop(members: dict[str, Any], listed: frozenset[str]) -> None:
    for name in members.keys() - listed:
        del members[name]
