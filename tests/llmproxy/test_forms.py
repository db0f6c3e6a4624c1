"""Answers in the other form than was asked for, relayed and charged; ``odd/answers.ndjson`` has what callers read."""

from collections.abc import Callable
from itertools import product
from json import dumps, loads
from typing import Any

import pytest

from llmproxy.calls import bodies, reading
from llmproxy.calls.relay import complete, stream
from llmproxy.dialects import forms
from llmproxy.dialects.protocol import ProviderError
from llmproxy.requests import messages, responses
from llmproxy.requests.call_request import CallRequest, Surface
from llmproxy.requests.chat import parse
from tests.effort import takes_at_most
from tests.llmproxy.odd.listening import heard_of_whole, listen
from tests.llmproxy.odd.rows import Heard
from tests.llmproxy.test_relay import Play, play, read
from tests.pairing import each_once
from tests.standins.raw_server import CHUNKED, OK, Peer
from usage.models import UsageRecord

__all__ = ["play"]

pytestmark = pytest.mark.django_db(transaction=True)
LIMIT = 50
HELLO = [{"role": "user", "content": "hello"}]
TEXT = "Hello from the other side."
ANTHROPIC_USAGE = {"input_tokens": 9, "output_tokens": 7}
CHAT = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 7},
}
MESSAGE = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": TEXT}],
    "stop_reason": "end_turn",
    "usage": ANTHROPIC_USAGE,
}
RESPONSE = {
    "id": "r1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [
        {
            "type": "message",
            "id": "i1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
        }
    ],
    "usage": ANTHROPIC_USAGE,
}


def _events(*datas: Any) -> bytes:
    return b"".join(b"data: %s\n\n" % dumps(data).encode() for data in datas)


CHAT_EVENTS = (
    _events(
        {**CHAT, "choices": [{"index": 0, "delta": {"content": TEXT[:9]}}], "usage": None},
        {**CHAT, "choices": [{"index": 0, "delta": {"content": TEXT[9:]}}], "usage": None},
        {**CHAT, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    )
    + b"data: [DONE]\n\n"
)
MESSAGE_EVENTS = _events(
    {"type": "message_start", "message": {**MESSAGE, "content": [], "usage": {"input_tokens": 9}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": ANTHROPIC_USAGE},
    {"type": "message_stop"},
)
RESPONSE_EVENTS = _events(
    {"type": "response.created", "response": {**RESPONSE, "output": [], "status": "in_progress"}},
    {"type": "response.output_item.done", "output_index": 0, "item": RESPONSE["output"][0]},  # type: ignore[index]
    {"type": "response.completed", "response": RESPONSE},
)
Ask = Callable[[bool], CallRequest]
# By surface and dialect: the request, an answer in one piece, and the same as events.
FORMS: dict[str, tuple[Surface, str, Ask, Any, bytes]] = {
    "chat": (
        Surface.CHAT,
        "openai",
        lambda streamed: parse({"messages": HELLO, "max_tokens": LIMIT}, stream=streamed),
        CHAT,
        CHAT_EVENTS,
    ),
    "chat at Anthropic": (
        Surface.CHAT,
        "anthropic",
        lambda streamed: parse({"messages": HELLO, "max_tokens": LIMIT}, stream=streamed),
        MESSAGE,
        MESSAGE_EVENTS,
    ),
    "messages": (
        Surface.MESSAGES,
        "anthropic",
        lambda streamed: messages.parse(
            {"messages": HELLO, "max_tokens": LIMIT, "stream": streamed}, headers={}
        ),
        MESSAGE,
        MESSAGE_EVENTS,
    ),
    "responses": (
        Surface.RESPONSES,
        "openai",
        lambda streamed: responses.parse(
            {"input": "hello", "max_output_tokens": LIMIT, "stream": streamed}
        ),
        RESPONSE,
        RESPONSE_EVENTS,
    ),
}
KINDS = [b"application/json", b"text/event-stream", b"text/plain", b""]


def answers(body: bytes, kind: bytes = b"", *, part: int = 0) -> Callable[[Peer], None]:
    """A provider that sends a body of a kind, at once or in parts of so many bytes."""
    head = b"Content-Type: %s\r\n" % kind if kind else b""

    def script(peer: Peer) -> None:
        peer.send(OK + head + b"Transfer-Encoding: chunked\r\n\r\n")
        step = part or len(body)
        for at in range(0, len(body), step):
            peer.chunk(body[at : at + step])
        peer.chunk(b"")

    return script


def settled() -> UsageRecord:
    return UsageRecord.objects.get(state="settled")


def costs() -> tuple[str, int, int, str]:
    record = settled()
    return record.end, record.input_tokens, record.output_tokens, record.source


@pytest.mark.parametrize(
    ("form", "kind", "part", "before"),
    each_once(
        product(FORMS, KINDS),
        [0, 1],
        [b"", b"\n\n \r\n", b": wait\n\n: still\r\n", b"event: ping\ndata:\n\n"],
    ),
)
def test_an_answer_in_one_piece_becomes_a_stream(
    play: Play, form: str, kind: bytes, part: int, before: bytes
) -> None:
    surface, dialect, ask, whole, _ = FORMS[form]
    body = before + dumps(whole, indent=1).encode()
    with play(answers(body, kind, part=part), request=ask(True), dialect=dialect) as call:
        listener = listen(surface, read(stream(call)))
    assert (listener.heard, listener.is_whole) == (Heard(text=TEXT), True)
    assert costs() == ("done", 9, 7, "provider")


@pytest.mark.parametrize(
    ("form", "kind", "part", "before"),
    each_once(product(FORMS, KINDS), [0, 1], [b"", b"\n\n", b": wait\n\n"]),
)
def test_a_stream_becomes_an_answer_in_one_piece(
    play: Play, form: str, kind: bytes, part: int, before: bytes
) -> None:
    surface, dialect, ask, _, events = FORMS[form]
    script = answers(before + events, kind, part=part)
    with play(script, request=ask(False), dialect=dialect) as call:
        answer = complete(call)
    assert heard_of_whole(surface, dumps(answer).encode()) == Heard(text=TEXT)
    usage = answer["usage"]
    assert 7 in (usage.get("completion_tokens"), usage.get("output_tokens"))
    assert costs() == ("done", 9, 7, "provider")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("streamed", [True, False])
def test_an_error_in_place_of_an_answer_stays_one(play: Play, form: str, streamed: bool) -> None:
    """An error of status 200 in the other form costs nothing, as in the form that was asked for."""
    _, dialect, ask, _, _ = FORMS[form]
    error = dumps({"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}})
    body = error.encode() if streamed else b"event: error\ndata: %s\n\n" % error.encode()
    with (
        play(answers(body), request=ask(streamed), dialect=dialect) as call,
        pytest.raises(Exception, match="provider_unavailable"),
    ):
        stream(call) if streamed else complete(call)
    assert costs() == ("provider_failed", 0, 0, "counted")


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_that_fails_where_one_piece_was_asked_for_costs_what_it_said(
    play: Play, form: str
) -> None:
    _, dialect, ask, _, events = FORMS[form]
    kept = {"chat": 2, "chat at Anthropic": 3, "messages": 3, "responses": 2}[form]
    begun = b"\n\n".join(events.split(b"\n\n")[:kept]) + b"\n\n"
    with (
        play(answers(begun), request=ask(False), dialect=dialect) as call,
        pytest.raises(ProviderError),
    ):
        complete(call)
    record = settled()
    assert (record.end, record.source) == ("provider_failed", "counted")
    assert record.output_tokens == -(-len(TEXT) // 4)
    assert record.input_tokens == (9 if dialect == "anthropic" else record.reserved_input)


@pytest.mark.parametrize("form", FORMS)
def test_a_truncated_body_is_not_read_as_a_whole_answer(play: Play, form: str) -> None:
    _, dialect, ask, whole, _ = FORMS[form]
    body = dumps({"usage": whole["usage"], **whole}).encode()[:-1]
    with (
        play(answers(body, part=7), request=ask(True), dialect=dialect) as call,
        pytest.raises(ProviderError),
    ):
        stream(call)
    assert settled().end == "answer_unread"


def test_a_whole_object_on_an_open_connection_is_an_answer(
    play: Play, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(reading, "REFUSAL_SECONDS", 0.1)
    settings.LLM_KEEPALIVE_SECONDS = 0.2

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(dumps(CHAT).encode())
        peer.wait_until_gone()

    with play(script) as call:
        assert listen(Surface.CHAT, read(stream(call))).heard == Heard(text=TEXT)
    assert settled().end == "done"


def test_the_caller_of_a_stream_hears_keep_alives_until_one_piece_is_whole(
    play: Play, settings: Any
) -> None:
    settings.LLM_KEEPALIVE_SECONDS = 0.1
    body = dumps(CHAT).encode()
    heard: list[bytes] = []

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(body[:40])
        while len(heard) < 3:
            pass
        peer.chunk(body[40:])
        peer.chunk(b"")

    with play(script) as call:
        answer = stream(call)
        heard.extend(answer)
        answer.close()
    assert heard[:3] == [b": keep-alive\n"] * 3
    assert listen(Surface.CHAT, b"".join(heard)).heard == Heard(text=TEXT)


@pytest.mark.parametrize("streamed", [True, False], ids=["one piece", "events"])
def test_a_large_answer_of_the_other_form_has_room_and_gives_it_back(
    play: Play, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "LARGE", 1024)
    aside: list[int] = []
    run = bodies._thread.run
    monkeypatch.setattr(bodies._thread, "run", lambda *given: (aside.append(1), run(*given))[1])
    text = "word " * 2_000
    choice: Any = {"index": 0, "message": {"content": text}, "finish_reason": "stop"}
    body = dumps({**CHAT, "choices": [choice]}).encode()
    if not streamed:
        body = b"data: " + body + b"\n\ndata: [DONE]\n\n"
    request = parse({"messages": HELLO, "max_tokens": 3_000}, stream=streamed)
    with play(answers(body, part=500), request=request) as call:
        if streamed:
            assert listen(Surface.CHAT, read(stream(call))).heard.text == text
        else:
            assert loads(dumps(complete(call)))["choices"][0]["message"]["content"] == text
            call.give_back_room()
    assert aside
    assert bodies.rooms.taken == 0


@pytest.mark.parametrize(
    "part", ["\n: ", "\ndata: ", "\nevent: x", "}\n", "}data: [DONE]", "\n \t"]
)
def test_text_around_an_answer_is_found_in_linear_time(part: str) -> None:
    """A pattern that tries every way of splitting such ends would take for ever."""
    body = b"{" + (part * (1_000 // len(part))).encode() + b"\nx"

    def look() -> None:
        assert forms._alone(body) == body
        assert not forms.are_events(body)
        forms.from_first_sign(part.encode() * 100_000)

    assert takes_at_most(50, look)


@pytest.mark.parametrize(
    ("behind", "text"),
    each_once(
        ["", "\n", "\n\ndata: [DONE]\n\n", "data: [DONE]\n\n", "\n: end\n"],
        ['print(f"{name}: {age}")', "{x}: y", "}id: 5", "}event: y", "}retry: 1", "}data: z"],
    ),
)
def test_a_brace_and_a_colon_in_a_text_do_not_end_the_answer(
    play: Play, text: str, behind: str
) -> None:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    body = dumps({**CHAT, "choices": [choice]}, separators=(",", ":")) + behind
    request = parse({"messages": HELLO, "max_tokens": LIMIT}, stream=False)
    with play(answers(body.encode(), part=7), request=request) as call:
        answer = complete(call)
    assert answer["choices"][0]["message"]["content"] == text
