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
EMBEDDINGS = frozenset({
    "object", "data", "model", "usage", "id", "created", "service_tier", "system_fingerprint",
})  # fmt: skip
RESPONSE = frozenset({
    "id", "object", "created_at", "completed_at", "status", "background", "conversation", "error", "incomplete_details",
    "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model", "moderation", "output", "output_text",
    "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "temperature", "text",
    "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "usage", "user", "frequency_penalty",
    "presence_penalty", "context_management", "content_filters",
})  # fmt: skip
# The events of a streamed response are of these kinds, or tell how one of these things goes on.
_KINDS = frozenset({
    "keepalive", "response.created", "response.queued", "response.in_progress", "response.completed",
    "response.incomplete", "response.failed",
})  # fmt: skip
_THINGS = frozenset({
    "output_item", "content_part", "output_text", "refusal", "function_call_arguments", "custom_tool_call_input",
    "reasoning", "reasoning_text", "reasoning_part", "reasoning_summary", "reasoning_summary_part",
    "reasoning_summary_text", "shell_call_command", "apply_patch_call_operation_diff",
})  # fmt: skip
EVENT = frozenset({
    "type", "sequence_number", "response", "output_index", "content_index", "summary_index", "annotation_index",
    "item_id", "item", "part", "annotation", "delta", "text", "refusal", "arguments", "input", "name", "call_id",
    "logprobs", "obfuscation", "status", "command", "command_index", "diff",
})  # fmt: skip


def is_listed_kind(kind: str) -> bool:
    """Whether events of this kind reach callers."""
    match kind.split("."):
        case ["response", thing, _] if thing in _THINGS:
            return True
        case ["response", "output_text", "annotation", _]:
            return True
    return kind in _KINDS


def is_listed(answer: dict[str, Any]) -> bool:
    """Whether all members of an answer or chunk reach callers."""
    return _ANSWER.issuperset(answer) and all(map(_is_listed_choice, answer["choices"]))


def _is_listed_choice(choice: dict[str, Any]) -> bool:
    return _CHOICE.issuperset(choice) and MESSAGE.issuperset(_message(choice))


def drop_unlisted(answer: dict[str, Any]) -> None:
    """Takes the other members out."""
    drop(answer, _ANSWER)
    for choice in answer["choices"]:
        drop(choice, _CHOICE)
        drop(_message(choice), MESSAGE)


def _message(choice: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = choice.get("delta") or choice.get("message") or {}
    return found


def drop(members: dict[str, Any], listed: frozenset[str]) -> None:
    """Takes the members out that are not in a list."""
    for name in members.keys() - listed:
        del members[name]
