"""Every provider's stream, in every framing: read alike, metered in full, and heard as the SDK hears it without us."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from llmproxy.dialects.by_name import DIALECTS
from llmproxy.dialects.protocol import KEEP_ALIVE, Problem, TokenUsage
from llmproxy.dialects.sse import EventParser
from llmproxy.requests.call_request import Surface
from llmproxy.requests.chat import parse
from tests.llmproxy.targets import target
from tests.standins.streams import Shape, heard_by_the_sdk

SHAPES = {shape.name: shape for shape in Shape.all()}
WHOLE = [name for name, shape in SHAPES.items() if not shape.fails]
FAILING = [name for name, shape in SHAPES.items() if shape.fails]


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def with_lines(event: bytes, end: bytes) -> bytes:
    return event.replace(b"\n", end)


def fields(event: bytes) -> bytes:
    named = b"" if event.startswith((b"event:", b":")) else b"event: message\n"
    return b"id: 7\nretry: 3000\n" + named + event


# Ways in which the network splits the bytes of a stream's events.
TRANSPORTS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "an event at a time": list,
    "all at once": lambda events: [b"".join(events)],
    "a byte at a time": lambda events: cut(b"".join(events), 1),
    "seven bytes at a time": lambda events: cut(b"".join(events), 7),
    "CRLF": lambda events: cut(with_lines(b"".join(events), b"\r\n"), 3),
    "CR": lambda events: cut(with_lines(b"".join(events), b"\r"), 5),
    "comments": lambda events: [b": before\n\n:\n%b" % event for event in events],
    "comments within": lambda events: [b": within\n%b" % event for event in events],
    "further fields": lambda events: [*map(fields, events)],
    "no blank after data": lambda events: [each.replace(b"data: ", b"data:", 1) for each in events],
    "blank lines": lambda events: [b"\n\n%b\n\n\n" % event for event in events],
    "a byte order mark": lambda events: [b"\xef\xbb\xbf" + events[0], *events[1:]],
    "no last blank line": lambda events: [b"".join(events).removesuffix(b"\n\n")],
}


class Read(NamedTuple):
    """The events of a stream, and the figures of the ledger and the relay."""

    body: bytes
    reported: TokenUsage | None
    size: int
    finished: bool
    failed: Problem | None


def read(shape: Shape, transport: str, *, include_usage: bool, called: str | None = None) -> Read:
    """Reads a stream to its end as the relay does, whatever follows."""
    options = {"stream_options": {"include_usage": True}} if include_usage else {}
    message = {"role": "user", "content": "Hello"}
    asked = parse({"messages": [message], "stream": True, **options}, stream=None)
    codec = DIALECTS[shape.dialect].codecs[Surface.CHAT]
    translator = codec.translator(asked, target=target(shape.dialect), called=called)
    parser, body, reported, size, finished = EventParser(), b"", None, 0, False
    written = TRANSPORTS[transport](shape.events())
    for event in (each for some in (*map(parser.feed, written), parser.finish()) for each in some):
        piece = translator.piece(event)
        body += piece.forward
        size += piece.size
        finished = finished or piece.finished
        reported = piece.reported or reported
        if piece.failed is not None:
            return Read(body, reported, size, finished, piece.failed)
        if piece.ended:
            break
    if reported is not None:
        body += translator.ending(reported)
    # A message of Anthropic's is dated when it comes.
    body = re.sub(rb'"created":\d+', b'"created":1764000000', body.replace(KEEP_ALIVE, b""))
    return Read(body, reported, size, finished, None)


def usages(body: bytes) -> list[dict[str, Any]]:
    """The usages that a caller finds, on a chunk or on a choice."""
    events = [each.removeprefix(b"data: ") for each in body.split(b"\n\n") if each]
    chunks = [json.loads(each) for each in events if each != b"[DONE]"]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return [each["usage"] for each in (*chunks, *choices) if each.get("usage")]


@pytest.mark.parametrize("name", WHOLE)
def test_a_stream_is_the_same_to_a_caller_however_its_bytes_come(name: str) -> None:
    shape = SHAPES[name]
    first, *others = [read(shape, transport, include_usage=True) for transport in TRANSPORTS]
    assert first.failed is None
    assert first.finished
    for other in others:
        assert other == first


@pytest.mark.parametrize("called", [None, "house"])
@pytest.mark.parametrize("name", WHOLE)
def test_a_caller_receives_the_providers_text(name: str, called: str | None) -> None:
    shape = SHAPES[name]
    given = read(shape, "a byte at a time", include_usage=True, called=called)
    assert heard_by_the_sdk(given.body) == shape.heard
    assert (called is None) or (b'"model":"house"' in given.body)


@pytest.mark.parametrize("name", WHOLE)
def test_a_caller_is_told_what_is_metered_once_and_only_where_it_asked(name: str) -> None:
    shape = SHAPES[name]
    given = read(shape, "all at once", include_usage=True)
    assert given.reported == TokenUsage(*shape.metered)
    (told,) = usages(given.body)
    known = given.reported
    counts = [told["prompt_tokens"], told["completion_tokens"], told["total_tokens"]]
    assert counts == [known.input, known.output, known.input + known.output]
    assert {type(count) for count in counts} == {int}
    assert told["prompt_tokens_details"] is None or (
        told["prompt_tokens_details"]["cached_tokens"] == known.cached_input
    )
    assert told["completion_tokens_details"]["reasoning_tokens"] == known.reasoning
    assert usages(read(shape, "all at once", include_usage=False).body) == []


@pytest.mark.parametrize("name", WHOLE)
def test_all_that_is_said_is_counted_in_case_that_nothing_is_reported(name: str) -> None:
    shape = SHAPES[name]
    message = shape.heard["message"]
    texts = [message.get(member) or "" for member in ("content", "refusal", "reasoning_content")]
    calls = [call["function"] for call in message.get("tool_calls", ())]
    texts += [text for call in calls for text in (call["name"], call["arguments"])]
    assert read(shape, "all at once", include_usage=False).size >= len("".join(texts).encode())


@pytest.mark.parametrize("name", FAILING)
def test_a_failure_is_told_as_what_it_is_however_its_bytes_come(name: str) -> None:
    shape = SHAPES[name]
    code, status, words = shape.fails
    for transport in TRANSPORTS:
        given = read(shape, transport, include_usage=True)
        if given.failed is None:
            # The relay takes the end of a connection without a finish reason for a failure.
            assert (given.finished, code) == (False, "provider_error")
            continue
        assert (given.failed.code, given.failed.status) == (code, status)
        assert given.failed.detail == (words or type(given.failed).default_detail)


def test_the_shapes_are_those_of_many_providers() -> None:
    named = {name.partition("/")[0] for name in SHAPES}
    assert len(named) >= 30
    assert sum(shape.dialect == "anthropic" for shape in SHAPES.values()) >= 30


@pytest.mark.parametrize(
    "name", [name for name in WHOLE if "head" in SHAPES[name].line and SHAPES[name].line.get("by") != "hand"]
)  # fmt: skip
def test_the_recording_is_what_the_sdk_hears_without_the_service(name: str) -> None:
    shape = SHAPES[name]
    heard = heard_by_the_sdk(b"".join(shape.events()))
    heard["message"]["role"] = "assistant"
    assert heard == shape.heard
