"""A dialect of its own, for the test that adds one: lines of text in, lines of text out."""

from json import dumps
from typing import Any

from config.api.problems import Fault, InvalidRequest, Problem
from llmproxy.dialects.chat_answers import DONE, completed, error_event
from llmproxy.dialects.protocol import (
    Dialect,
    Piece,
    ProviderRequest,
    Target,
    TokenUsage,
    Translator,
)
from llmproxy.dialects.sse import Event
from llmproxy.requests.call_request import Surface
from llmproxy.requests.chat import Chat


class Plain:
    def check(self, request: Chat) -> None:
        if "tools" in request.members:
            raise InvalidRequest(errors=[Fault("/tools", "unsupported", "There are none here.")])

    def prompt_overhead(self, request: Chat) -> int:
        return 3

    def outgoing(self, request: Chat, *, target: Target, output_limit: int) -> ProviderRequest:
        lines = [f"{target.model} {output_limit} {request.stream}"]
        lines += [each["content"] for each in request.members["messages"]]
        headers = target.dialect.credential(target.key())
        return ProviderRequest(f"{target.base_url}/say", headers, "\n".join(lines).encode())

    def answer(
        self, body: bytes, *, target: Target
    ) -> tuple[dict[str, Any], TokenUsage | None, int]:
        tokens, _, text = body.decode().partition(" ")
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"choices": [choice]}, TokenUsage(5, int(tokens)), len(text)

    def completed(
        self, answer: dict[str, Any], *, called: str | None, charged: TokenUsage | None
    ) -> dict[str, Any]:
        return completed(answer, called=called, charged=charged)

    def translator(self, request: Chat, *, target: Target, called: str | None) -> Translator:
        return _Words()


class _Words:
    def piece(self, event: Event) -> Piece:
        word = (event.data or b"").decode()
        if word == "END":
            return Piece(ended=True, finished=True, reported=TokenUsage(5, 2))
        chunk = {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}
        return Piece(forward=b"data: " + dumps(chunk).encode() + b"\n\n", size=len(word))

    def ending(self, charged: TokenUsage) -> bytes:
        return DONE

    def failure(self, problem: Problem) -> bytes:
        return error_event(problem)


PLAIN = Dialect(
    "plain",
    credential=lambda key: {"X-Key": key},
    image_tokens=lambda *_: 1,
    codecs={Surface.CHAT: Plain()},
)
