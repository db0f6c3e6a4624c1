"""Streams of the Responses API: what callers get of each event, and what counts as output."""

from json import dumps, loads
from typing import Any

import pytest

from config.platform.problems.problem import Problem
from llmproxy.dialects.openai.response_events import ResponseTranslator
from llmproxy.dialects.protocol import KEEP_ALIVE, Piece, ProviderError, TokenUsage
from llmproxy.dialects.sse import Event, EventParser

USAGE = {"input_tokens": 9, "output_tokens": 7, "total_tokens": 16}
CHARGED = TokenUsage(9, 7, 2, 1)


def event(kind: str, number: int = 0, **members: Any) -> bytes:
    data = dumps({"type": kind, "sequence_number": number, **members})
    return f"event: {kind}\ndata: {data}\n\n".encode()


def response(**members: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "model": "theirs", "output": [], **members}


def translator(called: str | None = None) -> ResponseTranslator:
    return ResponseTranslator(key=lambda: "sk-secret-key-1234", called=called)


def read(raw: bytes, reads: ResponseTranslator | None = None) -> list[Piece]:
    reads = reads or translator()
    parser = EventParser()
    return [reads.piece(each) for each in [*parser.feed(raw), *parser.finish()]]


def events_in(raw: bytes) -> list[tuple[str | None, dict[str, Any]]]:
    parser = EventParser()
    found: list[Event] = [*parser.feed(raw), *parser.finish()]
    return [(each.event, loads(each.data or b"")) for each in found]


def test_an_ordinary_event_passes_as_it_came() -> None:
    raw = event("response.output_text.delta", 4, delta="hä", output_index=0, obfuscation="xy")
    (piece,) = read(raw)
    assert (piece.forward, piece.size) == (raw, 3)
    unnamed = b'data: {"type":"response.output_text.delta","delta":"a"}\n\n'
    (piece,) = read(unnamed)
    assert piece.forward == b"event: response.output_text.delta\n" + unnamed


def test_an_event_of_an_unknown_kind_does_not_pass() -> None:
    for raw in (event("response.thing.happened", 3, thing=1), event("codex.rate_limits", left=1)):
        assert [each.forward for each in read(raw)] == [b""]


def test_members_pass_but_for_costs() -> None:
    raw = event("response.in_progress", 0, response=response(usage={"cost": 1}))
    assert b"cost" not in read(raw)[0].forward
    raw = event("response.created", 1, response=response(org="o"), region="a")
    raw += event("response.output_text.delta", 2, delta="cost", output_index=0, more=1)
    reads = translator()
    assert b"".join(each.forward for each in read(raw, reads)) == raw
    (piece,) = read(event("response.output_text.delta", 3, delta="a", of=[{"price": 1, "b": 2}]))
    ((_, delta),) = events_in(piece.forward)
    assert delta["of"] == [{"b": 2}]
    usage = {**USAGE, "iterations": 2, "cost": 0.1}
    ended = response(usage=usage, x_cost=1, nested={"usage": usage})
    read(event("response.completed", 3, response=ended, more=1), reads)
    ((_, told),) = events_in(reads.ending(CHARGED))
    assert (told["more"], told["response"]["usage"]["iterations"]) == (1, 2)
    assert "cost" not in told["response"]["usage"]
    assert told["response"]["nested"] == {}
    assert "x_cost" not in told["response"]


TEXT = "The whole answer. " * 100


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        ("response.output_text.delta", {"delta": "", "words": TEXT}),
        ("response.output_text.done", {"text": TEXT}),
        ("response.content_part.done", {"part": {"type": "output_text", "text": TEXT}}),
        ("response.output_item.done", {"item": {"type": "song", "lyrics": [{"line": TEXT}]}}),
        ("response.in_progress", {"response": response(words=TEXT)}),
        ("response.completed", {"response": response(output=[{"type": "a", "words": TEXT}])}),
    ],
)
def test_text_counts_wherever_a_provider_puts_it(kind: str, members: dict[str, Any]) -> None:
    (piece,) = read(event(kind, output_index=0, **members))
    assert piece.size == len(TEXT)


def test_the_callers_name_of_the_model_stands_in_each_response() -> None:
    (piece,) = read(event("response.created", response=response()), translator("ours"))
    ((name, told),) = events_in(piece.forward)
    assert (name, told["response"]["model"]) == ("response.created", "ours")


@pytest.mark.parametrize(
    "kind",
    [
        "output_text",
        "refusal",
        "reasoning_text",
        "reasoning_summary_text",
        "function_call_arguments",
        "custom_tool_call_input",
        "shell_call_command",
        "apply_patch_call_operation_diff",
    ],
)
def test_deltas_count_once(kind: str) -> None:
    texts = {"function_call_arguments": "arguments", "custom_tool_call_input": "input"}
    item = {"type": "message", "content": [{"type": "output_text", "text": "12345678"}]}
    if kind in texts:
        item = {"type": "function_call", texts[kind]: "12345678"}
    if kind == "shell_call_command":
        item = {"type": "shell_call", "action": {"commands": ["1234", "5678"]}}
    if kind == "apply_patch_call_operation_diff":
        item = {"type": "apply_patch_call", "operation": {"diff": "12345678"}}
    pieces = read(
        event("response.output_item.added", 1, output_index=0, item={"type": item["type"]})
        + event(f"response.{kind}.delta", 2, output_index=0, delta="1234")
        + event(f"response.{kind}.delta", 3, output_index=0, delta="5678")
        + event(f"response.{kind}.done", 4, output_index=0, text="12345678")
        + event("response.output_item.done", 5, output_index=0, item=item)
    )
    assert [each.size for each in pieces] == [0, 4, 4, 0, 0]


def test_an_item_without_deltas_counts_at_its_end() -> None:
    call = {"type": "function_call", "name": "f", "arguments": ""}
    pieces = read(
        event("response.output_item.added", 1, output_index=0, item=call)
        + event("response.output_item.done", 2, output_index=0, item={**call, "arguments": "{}"})
        + event("response.output_item.done", 3, output_index=1, item={**call, "arguments": "[1]"})
    )
    assert [each.size for each in pieces] == [1, 2, 4]


@pytest.mark.parametrize("kind", ["response.completed", "response.incomplete"])
def test_the_end_is_held_back_and_has_what_was_charged(kind: str) -> None:
    reads = translator("ours")
    ended = response(status="completed", usage={**USAGE, "input_tokens_details": {"other": 1}})
    (piece,) = read(event(kind, 8, response=ended), reads)
    assert (piece.forward, piece.finished, piece.ended) == (b"", True, True)
    assert piece.reported == TokenUsage(9, 7)
    ((name, told),) = events_in(reads.ending(CHARGED))
    assert (name, told["type"], told["sequence_number"]) == (kind, kind, 8)
    assert told["response"]["model"] == "ours"
    assert told["response"]["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"other": 1, "cached_tokens": 2},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 16,
    }


def test_an_end_without_usage_gets_what_was_charged() -> None:
    reads = translator()
    (piece,) = read(event("response.completed", response=response(usage=None)), reads)
    assert (piece.reported, piece.ended) == (None, True)
    ((_, told),) = events_in(reads.ending(CHARGED))
    assert told["response"]["usage"]["output_tokens"] == 7


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (event("error", code="server_error", message="Sorry"), "provider_error"),
        (event("error", error={"type": "server_error", "message": "Sorry"}), "provider_error"),
        (event("error", code="rate_limit_exceeded", message="Slow"), "provider_unavailable"),
        (event("response.failed", response=response(error=None)), "provider_error"),
        (
            event("response.failed", response=response(error={"code": "server_error"})),
            "provider_error",
        ),
        (
            event(
                "response.failed",
                response=response(error={"code": "context_length_exceeded", "message": "Long"}),
            ),
            "provider_rejected",
        ),
        *(
            (
                event("response.failed", response=response(error={"code": code, "message": "No"})),
                "provider_rejected",
            )
            for code in ("invalid_prompt", "invalid_image", "image_too_large")
        ),
        (b'data: {"error": {"message": "Sorry"}}\n\n', "provider_error"),
        (b"data: [DONE]\n\n", "provider_error"),
        (b"data: {not json\n\n", "provider_error"),
        (b"data: [1]\n\n", "provider_error"),
        # A second event within the kind of the first would pass the settlement.
        (
            b'data: {"type":"x\\ndata: {}\\n\\nevent: response.completed"}\n\n',
            "provider_error",
        ),
        (event("response.output_item.done", item=None), "provider_error"),
    ],
)
def test_a_failure_is_a_problem(raw: bytes, code: str) -> None:
    (piece,) = read(raw)
    assert piece.failed is not None
    assert piece.failed.code == code


def test_a_failure_may_report_what_was_used() -> None:
    failed = response(error={"code": "server_error"}, usage=USAGE)
    (piece,) = read(event("response.failed", response=failed))
    assert piece.failed is not None
    assert piece.reported == TokenUsage(9, 7)


def test_a_failure_ends_the_stream_as_openais_does() -> None:
    reads = translator("ours")
    read(event("response.created", 0, response=response()), reads)
    read(event("response.output_text.delta", 1, output_index=0, delta="a"), reads)
    (first, error), (second, failed) = events_in(reads.failure(ProviderError()))
    assert (first, second) == ("error", "response.failed")
    assert (error["sequence_number"], failed["sequence_number"]) == (2, 3)
    # Some SDKs read the one and others the other.
    assert error["code"] == error["error"]["code"] == "provider_error"
    assert (error["message"], error["error"]["status"]) == (error["error"]["message"], 502)
    assert failed["response"]["error"]["code"] == "provider_error"
    assert (failed["response"]["id"], failed["response"]["model"]) == ("resp_1", "ours")
    assert failed["response"]["status"] == "failed"


def test_a_failure_before_any_event_has_a_response_too() -> None:
    problem: Problem = ProviderError()
    _, (_, failed) = events_in(translator("ours").failure(problem))
    assert (failed["response"]["status"], failed["response"]["output"]) == ("failed", [])


def test_comments_keep_the_stream_alive_and_events_of_other_kinds_do_not_pass() -> None:
    assert [each.forward for each in read(b": ping\n\n")] == [KEEP_ALIVE]
    assert [each.forward for each in read(b'event: ping\ndata: {"at": 1}\n\n')] == [b""]
