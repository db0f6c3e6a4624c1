"""OpenAI's chat completions, and any server that speaks them (https://platform.openai.com/docs/api-reference/chat)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.conf import settings

from config.api.problems import Problem
from llmproxy.chat import Chat
from llmproxy.providers.protocol import (
    KEEP_ALIVE,
    Piece,
    ProviderError,
    ProviderRequest,
    TokenUsage,
    Translator,
    json_request,
)
from llmproxy.providers.reading import is_count, parse_json, size_of, usage_of
from llmproxy.providers.refusals import problem_of
from llmproxy.sse import Event, data_event
from llmproxy.tokens.images import openai_tokens

DONE = b"[DONE]"
_REASONING = ("reasoning_content", "reasoning")
_TEXTS = frozenset({"content", "refusal", *_REASONING})
# Characters of audio that cost as much as a byte of text: 64,000 a second (PCM at 24 kHz in base64), for 20 tokens of
# four bytes.
AUDIO_PER_BYTE = 800
# The members that all chunks of one answer share.
_HEAD = ("id", "object", "created", "model", "system_fingerprint", "service_tier")


class OpenAI:
    """``LLM_BASE_URL`` is the base URL of OpenAI's own SDK, with its ``/v1``."""

    name = "openai"

    def check(self, chat: Chat) -> None:
        """Every valid call can be sent."""

    def image_tokens(self, image: Mapping[str, Any], *, model: str) -> int:
        return openai_tokens(image, model=model)

    def prompt_overhead(self, chat: Chat) -> int:
        return 0

    def outgoing(self, chat: Chat, *, model: str, output_limit: int) -> ProviderRequest:
        body: dict[str, Any] = {**chat.members, "model": model, chat.limit_member: output_limit}
        if chat.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        credential = {"Authorization": f"Bearer {settings.LLM_API_KEY()}"}
        return json_request("/chat/completions", credential, body, streamed=chat.stream)

    def answer(self, body: bytes) -> tuple[dict[str, Any], TokenUsage | None, int]:
        try:
            answer, _ = parse_json(body)
            choices = answer["choices"]
            size = sum(_output_size(choice["message"]) for choice in choices)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ProviderError from None
        if not choices:
            raise ProviderError
        return answer, reported(answer.get("usage")), size

    def translator(self, chat: Chat, *, called: str | None = None) -> Translator:
        return _Translator(called)

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Problem:
        return problem_of(status, headers, body)


class _Translator:
    def __init__(self, called: str | None) -> None:
        self._name = {} if called is None else {"model": called}
        # The last chunk, and the last usage of any chunk.
        self._chunk: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}

    def piece(self, event: Event) -> Piece:
        """Translates one event. Its data is forwarded untouched, except for usage, another name, and invalid JSON."""
        if event.data is None:
            # A comment shows that the provider is alive, which becomes our own keep-alive.
            return Piece(forward=KEEP_ALIVE if event.raw.lstrip().startswith(b":") else b"")
        data = event.data.strip()
        if data == DONE:
            return Piece(ended=True)
        try:
            chunk, is_json = parse_json(data)
            if chunk.get("error") or event.event == "error":
                return Piece(failed=ProviderError())
            choices = chunk.get("choices")
            usage = None if (given := chunk.get("usage")) is None else reported(given)
            size, finished = 0, False
            for choice in choices or ():
                if delta := choice.get("delta"):
                    size += _output_size(delta)
                finished = finished or bool(choice.get("finish_reason"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return Piece(failed=ProviderError())
        # Events of other kinds (some servers send a ping) are no chunks, and break SDKs.
        is_chunk = isinstance(choices, list)
        self._chunk = chunk if is_chunk else self._chunk
        self._usage = self._usage if usage is None else chunk["usage"]
        forward = b""
        # A chunk without a choice has the usage or nothing for callers, and users of SDKs read the first choice.
        if is_chunk and choices:
            if not is_json or self._name:
                forward = data_event({**chunk, **self._name})
            else:
                forward = event.raw
                if forward != b"data: %b\n\n" % data:
                    # A byte order mark, a comment or a field beside the data is not for the caller.
                    forward = b"data: %b\n\n" % data.replace(b"\n", b" ")
        return Piece(forward=forward, size=size, finished=finished, reported=usage)

    def usage_chunk(self, known: TokenUsage) -> bytes:
        head = {name: self._chunk[name] for name in _HEAD if name in self._chunk}
        # The provider's usage has more members than ours; ours counts where it reported none or another.
        usage = usage_of(known) | (self._usage if reported(self._usage) == known else {})
        return data_event({**head, **self._name, "choices": [], "usage": usage})


def reported(usage: Any) -> TokenUsage | None:
    """The token usage of a ``usage`` object, or None without one. An explicit zero is a report."""
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not is_count(prompt) or not is_count(completion):
        return None
    return TokenUsage(
        input=prompt,
        output=completion,
        cached_input=_detail(usage, "prompt_tokens_details", "cached_tokens"),
        reasoning=_detail(usage, "completion_tokens_details", "reasoning_tokens"),
    )


def _detail(usage: dict[str, Any], group: str, name: str) -> int:
    details = usage.get(group)
    value = details.get(name) if isinstance(details, dict) else None
    return value if is_count(value) else 0


def _output_size(message: dict[str, Any]) -> int:
    """The bytes in a message or delta that a provider counts as output."""
    size = 0
    for name, value in message.items():
        if not value:
            continue
        if name in _TEXTS:
            size += size_of(value)
        elif name in _PARTS:
            size += sum(size_of(text) for text in _PARTS[name](message) if text)
    return size


def _tool_call_texts(message: dict[str, Any]) -> Iterable[str | None]:
    for call in message["tool_calls"]:
        function = call.get("function") or {}
        yield function.get("name")
        yield function.get("arguments")


def _reasoning_texts(message: dict[str, Any]) -> Iterable[str]:
    """The reasoning in parts, unless it comes as a text as well. Parts of other kinds are skipped."""
    details = message["reasoning_details"]
    if isinstance(details, list) and not any(message.get(name) for name in _REASONING):
        for part in details:
            if isinstance(part, dict):
                # The length of an encrypted part is unknown.
                texts = (part.get(name) for name in ("text", "summary"))
                yield from (each for each in texts if isinstance(each, str))


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
    "audio": _audio_texts,
}
