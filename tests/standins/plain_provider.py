"""Dialects for the tests that add some: one has lines of text in and out, another streams lines of JSON."""

from collections.abc import Callable
from json import dumps, loads
from typing import Any

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
from llmproxy.dialects.sse import Event, EventParser
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


class Objects(Plain):
    """Lines of JSON; the end of the connection is that of the answer."""

    streams_objects = True
    ends_by_closing = True
    # The word by which its translator says that the stream is over.
    last = ""

    def outgoing(self, request: Chat, *, target: Target, output_limit: int) -> ProviderRequest:
        asked = super().outgoing(request, target=target, output_limit=output_limit)
        return asked._replace(headers={**asked.headers, "Accept": "application/x-ndjson"})

    def parser(self) -> EventParser:
        return _LineParser()

    def translator(self, request: Chat, *, target: Target, called: str | None) -> "_Lines":
        return _Lines(self.last, key=target.key, called=called)


class _LineParser(EventParser):
    """Cuts a stream into its lines."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = b""

    def feed(self, data: bytes) -> list[Event]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [Event(line, line, None) for line in lines]

    def finish(self) -> list[Event]:
        return self.feed(b"\n") if self._rest else []


class _Lines(_Words):
    def __init__(self, last: str, **options: Any) -> None:
        super().__init__(include_usage=False, **options)
        self._last = last

    def _read(self, event: Event, data: bytes) -> Piece:
        word = loads(data)["word"]
        piece = super()._read(event, word.encode())
        piece.ended = word == self._last
        return piece


PLAIN = Dialect(
    "plain",
    address="https://plain.test",
    credential=lambda key: {"X-Key": key},
    image_tokens=lambda *_: 1,
    codecs={Surface.CHAT: Plain()},
)
OBJECTS = PLAIN._replace(name="objects", codecs={Surface.CHAT: Objects()})
