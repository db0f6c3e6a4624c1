"""A provider with a dialect of its own, for the test that adds one: lines of text in, lines of text out."""

from collections.abc import Mapping
from json import dumps
from typing import Any

from django.conf import settings

from config.api.problems import Fault, InvalidRequest, Problem
from llmproxy.chat import Chat
from llmproxy.providers.protocol import (
    Piece,
    ProviderError,
    ProviderRequest,
    TokenUsage,
    Translator,
)
from llmproxy.sse import Event


class Plain:
    name = "plain"

    def check(self, chat: Chat) -> None:
        if "tools" in chat.members:
            raise InvalidRequest(errors=[Fault("/tools", "unsupported", "There are none here.")])

    def image_tokens(self, image: Mapping[str, Any], *, model: str) -> int:
        return 1

    def prompt_overhead(self, chat: Chat) -> int:
        return 3

    def outgoing(self, chat: Chat, *, model: str, output_limit: int) -> ProviderRequest:
        lines = [f"{model} {output_limit} {chat.stream}"]
        lines += [each["content"] for each in chat.members["messages"]]
        return ProviderRequest(
            url=f"{settings.LLM_BASE_URL}/say",
            headers={"X-Key": settings.LLM_API_KEY()},
            body="\n".join(lines).encode(),
        )

    def answer(self, body: bytes) -> tuple[dict[str, Any], TokenUsage | None, int]:
        tokens, _, text = body.decode().partition(" ")
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"choices": [choice]}, TokenUsage(5, int(tokens)), len(text)

    def translator(self, chat: Chat, *, called: str | None = None) -> Translator:
        return _Words()

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Problem:
        return ProviderError()


class _Words:
    def piece(self, event: Event) -> Piece:
        word = (event.data or b"").decode()
        if word == "END":
            return Piece(ended=True, finished=True, reported=TokenUsage(5, 2))
        chunk = {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}
        return Piece(forward=b"data: " + dumps(chunk).encode() + b"\n\n", size=len(word))

    def usage_chunk(self, known: TokenUsage) -> bytes:
        usage = {"prompt_tokens": known.input, "completion_tokens": known.output}
        return b"data: " + dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
