"""Streams and answers in the shapes in which providers send them: every kind of event, through parser and dialect.

The files in `fixtures` are of our own making; their shapes are those of OpenAI's and Anthropic's APIs, and of
compatible servers where these differ.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from config.platform.problems.problem import Problem
from llmproxy.dialects.by_name import DIALECTS
from llmproxy.dialects.protocol import KEEP_ALIVE, Piece, TokenUsage
from llmproxy.dialects.sse import EventParser
from llmproxy.requests.call_request import Surface
from llmproxy.requests.chat import parse
from tests.llmproxy.targets import target

FIXTURES = Path(__file__).with_name("fixtures")
WEATHER = ("call_1", "weather", {"city": "Kiel"})
CACHED = TokenUsage(1032, 9, 1024, 0)


@dataclass(kw_only=True)
class Heard:
    """A caller's reading of a stream, and the figures of its bill."""

    text: str = ""
    thought: str = ""
    refusal: str = ""
    tools: list[tuple[str, str, Any]] = field(default_factory=list)
    finish: str | None = None
    reported: TokenUsage | None = None
    failed: str | None = None
    ended: bool = True


HEARD = {
    "openai-text": Heard(text="Grüße, 世界", finish="stop", reported=CACHED),
    "openai-tools": Heard(
        tools=[WEATHER, ("call_2", "time", {})],
        finish="tool_calls",
        reported=TokenUsage(1032, 31, 1024, 0),
    ),
    "openai-refusal": Heard(refusal="I cannot help.", finish="stop", reported=CACHED),
    "openai-filter": Heard(text="So", finish="content_filter", reported=CACHED),
    "openai-compatible-reasoning": Heard(
        text="Four.", thought="First then", finish="stop", reported=TokenUsage(11, 40, 0, 38)
    ),
    # Such servers end without a word; that the answer had its reason for ending is enough.
    "openai-compatible-cumulative": Heard(
        text="ab", finish="length", reported=TokenUsage(5, 2), ended=False
    ),
    "openai-unknown": Heard(text="Hi", finish="stop", reported=CACHED),
    "openai-error": Heard(text="Half", failed="provider_error", ended=False),
    "openai-named-error": Heard(text="Half", failed="provider_error", ended=False),
    "anthropic-text": Heard(
        text="Grüße, 世界", finish="stop", reported=TokenUsage(1029, 15, 1000, cache_write=4)
    ),
    "anthropic-thinking-tools": Heard(
        text="Let me see.",
        thought="Which city?",
        tools=[("toolu_1", "weather", {"city": "Kiel"}), ("toolu_2", "time", {})],
        finish="tool_calls",
        reported=TokenUsage(25, 89, 0, 30),
    ),
    "anthropic-server-tools": Heard(text="Found.", finish="stop", reported=TokenUsage(25, 15)),
    "anthropic-refusal": Heard(text="I", finish="content_filter", reported=TokenUsage(25, 15)),
    "anthropic-length": Heard(text="Once upon", finish="length", reported=TokenUsage(25, 15)),
    "anthropic-unknown": Heard(text="Hi", finish="stop", reported=TokenUsage(25, 15)),
    "anthropic-overloaded": Heard(text="Half", failed="provider_unavailable", ended=False),
    "anthropic-cut": Heard(text="Half", failed="provider_error", ended=False),
}


def pieces(name: str, *, size: int, include_usage: bool) -> Iterator[Piece]:
    """Yields the meaning of each event, up to the one after which nothing counts."""
    options = {"stream_options": {"include_usage": True}} if include_usage else {}
    asked = parse(
        {"messages": [{"role": "user", "content": "x"}], "stream": True, **options}, stream=None
    )
    dialect = name.partition("-")[0]
    codec = DIALECTS[dialect].codecs[Surface.CHAT]
    translator = codec.translator(asked, target=target(dialect), called=None)
    known: TokenUsage | None = None
    parser, data = EventParser(), (FIXTURES / f"{name}.sse").read_bytes()
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    for events in (*map(parser.feed, parts), parser.finish()):
        for event in events:
            piece = translator.piece(event)
            known = piece.reported or known
            if piece.ended and include_usage and known is not None:
                piece.forward += translator.ending(known)
            yield piece
            if piece.ended or piece.failed:
                return
    if include_usage and known is not None:
        # The connection ended in place of the stream.
        yield Piece(forward=translator.ending(known))


def chunks_of(given: list[Piece]) -> list[dict[str, Any]]:
    body = b"".join(piece.forward for piece in given).replace(KEEP_ALIVE, b"")
    blocks = body.split(b"\n\n")
    return [json.loads(each[6:]) for each in blocks if each.startswith(b"data: {")]


def heard(given: list[Piece]) -> Heard:
    made = Heard(ended=given[-1].ended)
    calls: dict[int, list[Any]] = {}
    for chunk in chunks_of(given):
        for choice in chunk["choices"]:
            delta = choice["delta"]
            made.text += delta.get("content") or ""
            made.thought += delta.get("reasoning_content") or delta.get("reasoning") or ""
            made.refusal += delta.get("refusal") or ""
            made.finish = choice["finish_reason"] or made.finish
            for call in delta.get("tool_calls") or ():
                known = calls.setdefault(
                    call["index"], [call.get("id"), call["function"].get("name"), ""]
                )
                known[2] += call["function"].get("arguments") or ""
    made.tools = [(call_id, name, json.loads(written)) for call_id, name, written in calls.values()]
    for piece in given:
        made.reported = piece.reported or made.reported
        made.failed = piece.failed.code if isinstance(piece.failed, Problem) else made.failed
    return made


@pytest.mark.parametrize("name", HEARD)
def test_a_stream_is_read_alike_however_its_bytes_are_cut(name: str) -> None:
    said = HEARD[name]
    for size in (1, 7, 100_000):
        given = list(pieces(name, size=size, include_usage=False))
        assert heard(given) == said
        assert not any(chunk.get("usage") for chunk in chunks_of(given))
        # Everything that a provider charges for as output is counted, also what is not shown.
        assert sum(piece.size for piece in given) >= len(said.text + said.thought + said.refusal)


@pytest.mark.parametrize("name", [name for name, said in HEARD.items() if said.failed is None])
def test_requested_usage_has_one_shape(name: str) -> None:
    chunks = chunks_of(list(pieces(name, size=1_000, include_usage=True)))
    (told,) = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    known = HEARD[name].reported
    assert known is not None
    assert (told["prompt_tokens"], told["completion_tokens"]) == (known.input, known.output)
    assert told["total_tokens"] == known.input + known.output
    assert told.get("prompt_tokens_details", {}).get("cached_tokens", 0) == known.cached_input
    assert told.get("completion_tokens_details", {}).get("reasoning_tokens", 0) == known.reasoning


def test_every_recording_is_tested() -> None:
    assert {path.stem for path in FIXTURES.glob("*.sse")} == set(HEARD)


@pytest.mark.parametrize(
    ("name", "finish", "reported"),
    [
        ("openai", "stop", TokenUsage(1032, 73, 1024, 64)),
        ("anthropic", "tool_calls", TokenUsage(1029, 73, 1000, 64, 4)),
    ],
)
def test_a_whole_answer_is_read_in_one_shape(name: str, finish: str, reported: TokenUsage) -> None:
    body = (FIXTURES / f"{name}-answer.json").read_bytes()
    answer, told, size = DIALECTS[name].codecs[Surface.CHAT].answer(body, target=target(name))
    (choice,) = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Four.", finish)
    assert told == reported
    assert size >= len("Four.")
    usage = answer["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == reported.cached_input
    assert usage["completion_tokens_details"]["reasoning_tokens"] == reported.reasoning
