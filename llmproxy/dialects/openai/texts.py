"""The texts of a message or delta: their size, and their plain form."""

from collections.abc import Callable, Iterable, Mapping
from json import dumps
from typing import Any

from llmproxy.dialects.passing import text_size
from llmproxy.dialects.reading import size_of

# Characters of audio that cost as much as a byte of text: 64,000 a second (PCM at 24 kHz in base64), for 20 tokens of
# four bytes.
AUDIO_PER_BYTE = 800
_REASONING = ("reasoning_content", "reasoning")
_TEXTS = frozenset({"content", "refusal", *_REASONING})
# The members of a message that are no output: who speaks, what is referred to, and thoughts that come as text as well.
_NO_OUTPUT = frozenset({
    "role", "name", "id", "annotations", "citations", "images", "extra_content", "provider_specific_fields",
    "executed_tools", "phase",
})  # fmt: skip
# The members of an answer or a choice that are no output, or counted by themselves.
NO_TEXT = frozenset({
    "id", "object", "created", "model", "choices", "usage", "service_tier", "system_fingerprint", "obfuscation",
    "moderation", "metadata", "request_id", "provider", "x_groq", "citations", "search_results", "images", "videos",
    "related_questions", "prompt_filter_results", "timings", "time_info", "kv_transfer_params", "index", "message",
    "delta", "finish_reason", "native_finish_reason", "stop_reason", "matched_stop", "logprobs", "prompt_logprobs",
    "content_filter_results", "content_filter_result", "error",
})  # fmt: skip
# The kinds of parts that are thinking, Mistral's and Databricks'.
_THOUGHTS = frozenset({"thinking", "reasoning"})


class NotPlain(TypeError):
    """A text is written as a list of parts, or arguments as an object."""


def output_size(message: dict[str, Any]) -> int:
    """The bytes in a message or delta that a provider counts as output. Raises ``NotPlain``."""
    size = 0
    for name, value in message.items():
        if value is None:
            continue
        if name in _TEXTS:
            if not isinstance(value, str):
                raise NotPlain
            size += size_of(value)
        elif name in _PARTS:
            size += sum(size_of(text) for text in _PARTS[name](message) if text) if value else 0
        elif name not in _NO_OUTPUT:
            size += text_size({name: value})
    return size


def plain_size(message: dict[str, Any]) -> tuple[int, bool]:
    """The size of a message or delta, made plain where it was not, and whether it was."""
    try:
        return output_size(message), True
    except NotPlain:
        _make_plain(message)
        return output_size(message), False


def _make_plain(message: dict[str, Any]) -> None:
    """Writes each text as a string, as clients read it.

    Mistral's models stream their content in parts, their thinking among them, and some servers write a tool call's
    arguments as an object. Raises ``TypeError`` for what is neither.
    """
    thought = ""
    for name in _TEXTS & message.keys():
        if isinstance(message[name], list | dict):
            text, thinking = _joined(message[name])
            message[name], thought = text, thought + thinking
    if thought:
        message["reasoning_content"] = (message.get("reasoning_content") or "") + thought
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        if isinstance(function.get("arguments"), dict | list):
            function["arguments"] = dumps(function["arguments"])


def _joined(parts: Any) -> tuple[str, str]:
    """The text of parts, and the text of those that are thinking. Parts of other kinds have neither."""
    text, thought = "", ""
    for part in parts if isinstance(parts, list) else [parts]:
        if isinstance(part, str):
            text += part
        elif part.get("type") in _THOUGHTS:
            thinking = part.get("thinking") or part.get("summary") or ""
            thought += thinking if isinstance(thinking, str) else "".join(_joined(thinking))
        else:
            text += part.get("text") or ""
    return text, thought


def _tool_call_texts(message: dict[str, Any]) -> Iterable[str | None]:
    for call in message["tool_calls"]:
        function = call.get("function") or call.get("custom") or {}
        yield function.get("name")
        arguments = function.get("arguments", function.get("input"))
        if not isinstance(arguments, str | None):
            raise NotPlain
        yield arguments


def _reasoning_texts(message: dict[str, Any]) -> Iterable[str]:
    """The reasoning in parts, unless it comes as a text as well. Parts of other kinds are skipped."""
    details = message.get("reasoning_details") or message.get("thinking_blocks")
    if isinstance(details, list) and not any(message.get(name) for name in _REASONING):
        for part in details:
            if isinstance(part, dict):
                # The length of an encrypted part is unknown.
                texts = (part.get(name) for name in ("text", "summary", "thinking"))
                yield from (each for each in texts if isinstance(each, str))


def _thinking_texts(message: dict[str, Any]) -> Iterable[str]:
    """LiteLLM's thoughts, where there are no others."""
    return () if message.get("reasoning_details") else _reasoning_texts(message)


def _audio_texts(message: dict[str, Any]) -> Iterable[str]:
    """The transcript of audio, or as much text as audio of that length costs."""
    audio = message["audio"]
    if isinstance(audio, dict):
        transcript, data = audio.get("transcript"), audio.get("data")
        if transcript and isinstance(transcript, str):
            yield transcript
        elif data and isinstance(data, str):
            yield "." * -(-len(data) // AUDIO_PER_BYTE)


# The members whose text comes in parts.
_PARTS: Mapping[str, Callable[[dict[str, Any]], Iterable[str | None]]] = {
    "tool_calls": _tool_call_texts,
    "reasoning_details": _reasoning_texts,
    "thinking_blocks": _thinking_texts,
    "audio": _audio_texts,
}
