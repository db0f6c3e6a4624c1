"""A dialect of its own, for the test that adds one: lines of text in, lines of text out."""

from collections.abc import Callable
from json import dumps

from config.platform.problems.problem import Fault, InvalidRequest
from llmproxy.dialects.chat_answers import DONE, ChatCodec, ChatTranslator
from llmproxy.dialects.protocol import (
    Dialect,
    Piece,
    ProviderRequest,
    Target,
    TokenUsage,
    WholeAnswer,
)
from llmproxy.dialects.sse import Event
from llmproxy.requests.call_request import Surface
from llmproxy.requests.chat import Chat


class Plain(ChatCodec):
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

    def _read(self, body: bytes, key: Callable[[], str]) -> WholeAnswer:
        tokens, _, text = body.decode().partition(" ")
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return WholeAnswer({"choices": [choice]}, TokenUsage(5, int(tokens)), len(text))

    def translator(self, request: Chat, *, target: Target, called: str | None) -> "_Words":
        return _Words(include_usage=request.include_usage, key=target.key, called=called)


class _Words(ChatTranslator):
    def _read(self, event: Event, data: bytes) -> Piece:
        word = data.decode()
        if word == "END":
            return Piece(ended=True, finished=True, reported=TokenUsage(5, 2))
        chunk = {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}
        return Piece(forward=b"data: " + dumps(chunk).encode() + b"\n\n", size=len(word))

    def ending(self, charged: TokenUsage) -> bytes:
        return DONE


PLAIN = Dialect(
    "plain",
    credential=lambda key: {"X-Key": key},
    image_tokens=lambda *_: 1,
    codecs={Surface.CHAT: Plain()},
)
