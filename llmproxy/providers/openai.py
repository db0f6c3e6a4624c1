"""Any server that speaks OpenAI's chat completions (https://platform.openai.com/docs/api-reference/chat)."""

from collections.abc import Iterable, Mapping
from json import dumps, loads
from typing import Any

from django.conf import settings

from config.problems import Problem
from llmproxy.chat import Chat
from llmproxy.providers.protocol import (
    KEEP_ALIVE,
    Outgoing,
    Piece,
    ProviderError,
    ProviderRejected,
    ProviderTimeout,
    ProviderUnavailable,
    Reported,
    Translator,
)
from llmproxy.providers.reading import NOT_US, is_count, note_refused, said, wait_of
from llmproxy.sse import Event

DONE = b"[DONE]"
# An image of 2048 by 2048 in high detail, in tiles of 512: 85 and 16 times 170.
IMAGE_TOKENS = 2_805
# The request was at fault, not we: these are the caller's to mend.
_CALLERS_FAULT = frozenset({400, 404, 422})
_BUSY = frozenset({408, 409, 429, 503, 529})


class OpenAI:
    """``LLM_BASE_URL`` is as OpenAI's own SDK takes it, with its ``/v1``."""

    name = "openai"
    image_tokens = IMAGE_TOKENS

    def check(self, chat: Chat) -> None:
        """Whatever has been taken can be asked."""

    def prompt_overhead(self, chat: Chat) -> int:
        return 0

    def outgoing(self, chat: Chat, *, model: str, output_limit: int) -> Outgoing:
        body: dict[str, Any] = {**chat.members, "model": model, chat.limit_member: output_limit}
        if chat.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return Outgoing(
            url=f"{settings.LLM_BASE_URL}/chat/completions",
            headers={
                "Authorization": f"Bearer {settings.LLM_API_KEY()}",
                "Content-Type": "application/json",
                "Accept": "text/event-stream" if chat.stream else "application/json",
                "User-Agent": f"shell-backend/{settings.VERSION}",
            },
            body=dumps(body, ensure_ascii=True, separators=(",", ":")).encode(),
        )

    def answer(self, body: bytes) -> tuple[dict[str, Any], Reported | None, int]:
        try:
            answer = loads(body)
            choices = answer["choices"]
            size = sum(_size(choice["message"]) for choice in choices)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ProviderError from None
        if not choices:
            raise ProviderError
        return answer, reported(answer.get("usage")), size

    def translator(self, chat: Chat) -> Translator:
        return _Translator(include_usage=chat.include_usage)

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Problem:
        if status in _CALLERS_FAULT:
            return ProviderRejected(said(body))
        if status == 504:
            return ProviderTimeout()
        if status in NOT_US:
            note_refused(status)
        wait = wait_of(headers)
        return ProviderUnavailable(headers=wait) if status in _BUSY else ProviderError(headers=wait)


class _Translator:
    def __init__(self, *, include_usage: bool) -> None:
        self._include_usage = include_usage

    def piece(self, event: Event) -> Piece:
        """One event. It goes on untouched, but for the usage chunk that only we had asked for."""
        if event.data is None:
            # A comment says that the provider lives; that is worth saying on, in our own words.
            return Piece(forward=KEEP_ALIVE if event.raw.lstrip().startswith(b":") else b"")
        data = event.data.strip()
        if data == DONE:
            return Piece(ended=True)
        try:
            chunk = loads(data)
            if chunk.get("error") or event.event == "error":
                return Piece(failed=ProviderError())
            choices = chunk.get("choices") or ()
            usage = reported(chunk.get("usage"))
            size = sum(_size(choice.get("delta") or {}) for choice in choices)
            finished = any(choice.get("finish_reason") for choice in choices)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return Piece(failed=ProviderError())
        # Events of other kinds (some servers have a ping) are no chunks, and SDKs would stumble over them.
        is_chunk = isinstance(chunk.get("choices"), list)
        ours_alone = usage is not None and not choices and not self._include_usage
        forward = event.raw if is_chunk and not ours_alone else b""
        return Piece(forward=forward, size=size, finished=finished, reported=usage)


def reported(usage: Any) -> Reported | None:
    """A ``usage`` object, or None where there is none. An explicit zero is a report."""
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not is_count(prompt) or not is_count(completion):
        return None
    return Reported(
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
    """Bytes of everything in a message or delta that a provider counts as output."""
    texts = [
        message.get("content"),
        message.get("refusal"),
        message.get("reasoning_content"),
        message.get("reasoning"),
    ]
    return sum(
        len(text.encode("utf-8", "replace")) for text in [*texts, *_arguments(message)] if text
    )


def _arguments(message: dict[str, Any]) -> Iterable[str | None]:
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        yield function.get("name")
        yield function.get("arguments")
