"""The reasons for which answers end: all servers' words for them, and what callers of each surface get.

One word may mean that the answer has failed. A word that nobody knows says that it has ended: its text is whole.
"""

import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

# Words are compared in small letters without marks: MAX_TOKENS, maxTokens and max-tokens are one.
# OpenAI's reasons, each with all servers' words for it.
_ENDS = {
    "stop": "stop stopped stop_sequence stop_str end end_turn end_of_turn eos eos_token eot eot_id complete completed "
    "done finish finished pause_turn compaction repetition",
    "length": "length max_length max_tokens max_new_tokens max_output_tokens max_completion_tokens model_length "
    "max_context_length context_length context_length_exceeded context_window_exceeded token_limit error_limit "
    "model_context_window_exceeded",
    "tool_calls": "tool_calls tool_call tool_use function_calls",
    "function_call": "function_call",
    "content_filter": "content_filter content_filtered filtered refusal safety recitation sensitive blocklist blocked "
    "prohibited_content spii image_safety image_prohibited_content image_recitation guardrail guardrails "
    "guardrail_intervened model_armor escalation error_toxic moderation",
}
# An answer with one of these was broken off by its server.
_FAILURES = (
    "error errored failed failure fail abort aborted cancel canceled cancelled user_cancel interrupted terminated "
    "network_error insufficient_system_resource engine_error engine_overloaded internal_error internal_server_error "
    "server_error api_error inference_error provider_error upstream_error model_error timeout timed_out "
    "deadline_exceeded overloaded overloaded_error capacity unavailable service_unavailable out_of_memory preempted "
    "resource_exhausted rate_limit rate_limit_exceeded malformed_function_call malformed_tool_call malformed_response "
    "malformed_model_output malformed_tool_use unexpected_tool_call too_many_tool_calls missing_thought_signature"
)
# Anthropic's own words, which pass to callers of its messages, and its words for OpenAI's.
_ANTHROPICS = frozenset({
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "compaction",
    "model_context_window_exceeded",
})  # fmt: skip
_IN_MESSAGES = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
# A response says what of it is missing.
_IN_RESPONSES = {"length": "max_output_tokens", "content_filter": "content_filter"}

# Called with the provider's name for each answer with a word that nobody knows; composition registers them.
unknown: list[Callable[[str], object]] = []
# The providers whose unknown words were logged.
_logged: set[str] = set()


def _plain(word: str) -> str:
    return "".join(filter(str.isalnum, word)).lower()


_REASONS = {_plain(word): reason for reason, words in _ENDS.items() for word in words.split()}
_FAILED = frozenset(map(_plain, _FAILURES.split()))


def is_failure(given: Any) -> bool:
    """Returns whether a reason means that the answer has failed."""
    return _plain(_word(given)) in _FAILED


def finish_reason(given: Any, *, provider: str) -> str:
    """OpenAI's finish reason; ``stop`` for a word that nobody knows, which is noted."""
    if isinstance(given, str) and given in _ENDS:
        return given
    reason = _REASONS.get(_plain(_word(given)))
    if reason is None:
        _note_unknown(provider)
    return reason or "stop"


def stop_reason(given: Any, *, provider: str) -> str:
    """Anthropic's stop reason; ``end_turn`` for a word that nobody knows, which is noted."""
    if isinstance(given, str) and given in _ANTHROPICS:
        return given
    return _IN_MESSAGES[finish_reason(given, provider=provider)]


def unsaid(*, has_calls: bool) -> str:
    """OpenAI's reason for the end of an answer that is whole, where its server says none or an empty one."""
    return "tool_calls" if has_calls else "stop"


def incomplete_reason(given: Any) -> Any:
    """The reason for which a response is incomplete; one that nobody knows as it came, since the status is enough."""
    return _IN_RESPONSES.get(_REASONS.get(_plain(_word(given)), ""), given)


def _word(given: Any) -> str:
    """The word of a reason; SGLang's own API writes it into an object."""
    given = given.get("type") if isinstance(given, dict) else given
    return given if isinstance(given, str) else ""


def _note_unknown(provider: str) -> None:
    """Counts and, once for each provider, logs; not the word itself, which may be of the caller's text."""
    for note in unknown:
        note(provider)
    if provider not in _logged:
        _logged.add(provider)
        log.warning("unknown_finish_reason", extra={"provider": provider})
