"""Any server that speaks OpenAI's chat completions (https://platform.openai.com/docs/api-reference/chat)."""

from collections.abc import Callable, Iterable, Mapping
from json import dumps
from typing import Any

from django.conf import settings

from config.api.problems import Problem
from llmproxy.chat import Chat
from llmproxy.providers.protocol import (
    KEEP_ALIVE,
    Piece,
    ProviderError,
    ProviderRejected,
    ProviderRequest,
    ProviderTimeout,
    ProviderUnavailable,
    TokenUsage,
    Translator,
)
from llmproxy.providers.reading import (
    NOT_US,
    REFUSED,
    is_count,
    note_refused,
    read,
    refuses_us,
    said,
    usage_of,
    wait_of,
)
from llmproxy.sse import Event

DONE = b"[DONE]"
# An image of 2048 by 2048 in high detail, in tiles of 512: 85 and 16 times 170.
IMAGE_TOKENS = 2_805
# The request is at fault: the caller can fix it.
_CALLERS_FAULT = frozenset({400, 404, 413, 422})
_BUSY = frozenset({408, 409, 429, 503, 529})
_THOUGHTS = ("reasoning_content", "reasoning")
_TEXTS = frozenset({"content", "refusal", *_THOUGHTS})
# Characters of sound that cost as much as a byte of text: 64,000 a second (PCM at 24 kHz in base64), for 20 tokens of
# four bytes.
SOUND = 800
# The members that all chunks of one answer share.
_HEAD = ("id", "object", "created", "model", "system_fingerprint", "service_tier")


class OpenAI:
    """``LLM_BASE_URL`` is as OpenAI's own SDK takes it, with its ``/v1``."""

    name = "openai"
    image_tokens = IMAGE_TOKENS

    def check(self, chat: Chat) -> None:
        """Every valid call can be sent."""

    def prompt_overhead(self, chat: Chat) -> int:
        return 0

    def outgoing(self, chat: Chat, *, model: str, output_limit: int) -> ProviderRequest:
        body: dict[str, Any] = {**chat.members, "model": model, chat.limit_member: output_limit}
        if chat.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return ProviderRequest(
            url=f"{settings.LLM_BASE_URL}/chat/completions",
            headers={
                "Authorization": f"Bearer {settings.LLM_API_KEY()}",
                "Content-Type": "application/json",
                "Accept": "text/event-stream" if chat.stream else "application/json",
                "User-Agent": f"shell-backend/{settings.VERSION}",
            },
            body=dumps(body, ensure_ascii=True, separators=(",", ":")).encode(),
        )

    def answer(self, body: bytes) -> tuple[dict[str, Any], TokenUsage | None, int]:
        try:
            answer, _ = read(body)
            choices = answer["choices"]
            size = sum(_size(choice["message"]) for choice in choices)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ProviderError from None
        if not choices:
            raise ProviderError
        return answer, reported(answer.get("usage")), size

    def translator(self, chat: Chat, *, called: str | None = None) -> Translator:
        return _Translator(called)

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Problem:
        is_ours = status in NOT_US or refuses_us(body)
        if status in _CALLERS_FAULT and not is_ours:
            return ProviderRejected(said(body) or REFUSED.get(status))
        wait = wait_of(headers)
        if status == 504:
            return ProviderTimeout(headers=wait)
        if is_ours:
            note_refused(status)
        return ProviderUnavailable(headers=wait) if status in _BUSY else ProviderError(headers=wait)


class _Translator:
    def __init__(self, called: str | None) -> None:
        self._called = called
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
            chunk, is_json = read(data)
            if chunk.get("error") or event.event == "error":
                return Piece(failed=ProviderError())
            choices = chunk.get("choices")
            usage = None if (told := chunk.get("usage")) is None else reported(told)
            size, finished = 0, False
            for choice in choices or ():
                if delta := choice.get("delta"):
                    size += _size(delta)
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
            if not is_json or self._called is not None:
                forward = self._renamed(chunk)
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
        return _event({**head, **self._name(), "choices": [], "usage": usage})

    def _renamed(self, chunk: dict[str, Any]) -> bytes:
        return _event({**chunk, **self._name()})

    def _name(self) -> dict[str, str]:
        return {} if self._called is None else {"model": self._called}


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


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


def _size(message: dict[str, Any]) -> int:
    """The bytes in a message or delta that a provider counts as output."""
    size = 0
    for name, value in message.items():
        if not value:
            continue
        if name in _TEXTS:
            size += len(value) if value.isascii() else _bytes(value)
        elif name in _PARTS:
            size += sum(_bytes(text) for text in _PARTS[name](message) if text)
    return size


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _arguments(message: dict[str, Any]) -> Iterable[str | None]:
    for call in message["tool_calls"]:
        function = call.get("function") or {}
        yield function.get("name")
        yield function.get("arguments")


def _thoughts(message: dict[str, Any]) -> Iterable[str]:
    """The reasoning in parts, unless it comes as a text as well. Parts of other kinds are skipped."""
    details = message["reasoning_details"]
    if isinstance(details, list) and not any(message.get(name) for name in _THOUGHTS):
        for part in details:
            if isinstance(part, dict):
                # Encrypted parts do not tell their length.
                said = (part.get(name) for name in ("text", "summary"))
                yield from (each for each in said if isinstance(each, str))


def _spoken(message: dict[str, Any]) -> Iterable[str]:
    """The transcript of audio, or as much text as audio of that length costs."""
    audio = message["audio"]
    if isinstance(audio, dict):
        words, sound = audio.get("transcript"), audio.get("data")
        if words and isinstance(words, str):
            yield words
        elif sound and isinstance(sound, str):
            yield "." * -(-len(sound) // SOUND)


# The members whose text comes in parts.
_PARTS: Mapping[str, Callable[[dict[str, Any]], Iterable[str | None]]] = {
    "tool_calls": _arguments,
    "reasoning_details": _thoughts,
    "audio": _spoken,
}
