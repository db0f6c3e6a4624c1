"""Parts of answers that cannot be read: what a part reports or looks like says nothing of the whole."""

import time
from dataclasses import replace
from json import dumps, loads
from typing import Any

import pytest

from llmproxy.calls.relay import stream
from llmproxy.calls.stop import StopReason
from llmproxy.dialects.protocol import ProviderError
from llmproxy.requests import messages, responses
from tests.llmproxy.test_relay import SAID, Play, chunk, play, plays, read
from tests.llmproxy.test_unread import DEEP_EVENT, LIMIT, settled
from tests.standins.raw_server import CHUNKED, Peer

__all__ = ["play"]

pytestmark = pytest.mark.django_db(transaction=True)
# Some servers report in each chunk what was used by then.
SO_FAR = chunk("one", usage={"prompt_tokens": 9, "completion_tokens": 1})
# Long enough that a relay reads the parts before and after one by one.
BETWEEN = 0.2


@pytest.mark.parametrize("parts", [(SO_FAR + DEEP_EVENT,), (SO_FAR, DEEP_EVENT)])
@pytest.mark.parametrize("last", [b": bye\n\n", chunk("two"), b"data: [DO"])
def test_a_usage_before_what_cannot_be_read_is_no_report(
    play: Play, parts: tuple[bytes, ...], last: bytes
) -> None:
    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        for part in (*parts, last):
            peer.chunk(part)
            time.sleep(BETWEEN)
        peer.close()

    with play(script, max_tokens=LIMIT) as call:
        assert b"provider_error" in read(stream(call))
    record = settled()
    assert (record.end, record.output_tokens) == ("answer_unread", LIMIT)
    assert record.source == "estimated"


def test_a_usage_after_it_is_one(play: Play) -> None:
    later = chunk("two", usage={"prompt_tokens": 9, "completion_tokens": 33})

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(SO_FAR + DEEP_EVENT + later)
        peer.close()

    with play(script, max_tokens=LIMIT) as call:
        assert b"provider_error" in read(stream(call))
    assert (settled().output_tokens, settled().source) == (33, "provider")


def test_a_part_that_begins_like_a_page_is_no_refusal(play: Play) -> None:
    """Whoever writes the prompt has a share in where an event is cut and in what follows."""

    at = DEEP_EVENT.index(b'a", "b"')

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(DEEP_EVENT[:at])
        time.sleep(BETWEEN)
        peer.chunk(b"<" + DEEP_EVENT[at:])
        peer.chunk(b"")

    with play(script, max_tokens=LIMIT) as call, pytest.raises(ProviderError):
        stream(call)
    assert (settled().end, settled().output_tokens) == ("answer_unread", LIMIT)


@pytest.mark.parametrize("usage", [{"output_tokens": 33}, {"input_tokens": 9, "output_tokens": 33}])
def test_a_prompt_that_was_reported_first_is_of_the_whole(
    play: Play, usage: dict[str, int]
) -> None:
    """Anthropic's streams report the prompt at their beginning, and may not at their end."""
    first = {"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 1}
    parts = (
        {"type": "message_start", "message": {"id": "m", "model": "m", "usage": first}},
        {"type": "content_block_delta", "delta": loads("[" * 300 + "]" * 300)},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    )
    request = messages.parse({"messages": SAID, "max_tokens": LIMIT, "stream": True}, headers={})
    events = [b"data: %b\n\n" % dumps(each).encode() for each in parts]
    with play(plays(*events), request=request, dialect="anthropic") as call:
        assert b"provider_error" in read(stream(call))
    record = settled()
    assert (record.input_tokens, record.output_tokens, record.source) == (9, 33, "provider")


def test_a_prompt_that_was_reported_first_is_no_report(play: Play) -> None:
    first = {
        "type": "message_start",
        "message": {"id": "m", "model": "m", "usage": {"input_tokens": 9}},
    }
    request = messages.parse({"messages": SAID, "max_tokens": LIMIT, "stream": True}, headers={})
    events = [b"data: %b\n\n" % dumps(first).encode(), b"data: {nothing\n\n"]
    with play(plays(*events), request=request, dialect="anthropic") as call:
        assert b"provider_error" in read(stream(call))
    assert (settled().input_tokens, settled().output_tokens) == (9, LIMIT)


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("reports", [True, False])
def test_a_client_that_disconnects_from_an_unreadable_answer_is_charged(
    play: Play, settings: Any, cut: bool, reports: bool
) -> None:
    """Its text is not delivered and so not counted, and the time until then says little of it."""
    settings.LLM_KEEPALIVE_SECONDS = 0.2
    usage = {"prompt_tokens": 9, "completion_tokens": 33}

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(DEEP_EVENT + (chunk("two", usage=usage) if reports else b""))
        peer.wait_until_gone()

    with play(script, max_tokens=LIMIT) as call:
        answer = stream(call)
        if cut:
            call.cut(StopReason.CLIENT_GONE)
            read(answer)
        answer.close()
    record = settled()
    assert (record.end, record.output_tokens) == ("client_gone", 33 if reports else LIMIT)


def test_a_response_may_repeat_its_request(play: Play) -> None:
    instructions = "x" * 2_500_000
    begun = {"id": "r", "object": "response", "output": [], "instructions": instructions}
    usage = {"input_tokens": 9, "output_tokens": 3}
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.completed", "response": {**begun, "usage": usage}},
    ]
    request = responses.parse({"input": "hello", "max_output_tokens": LIMIT, "stream": True})
    script = plays(*[b"data: %b\n\n" % dumps(each).encode() for each in events])
    with play(script, request=request) as call:
        call.admission = replace(call.admission, size=len(instructions))
        assert b"response.completed" in read(stream(call))
    assert (settled().end, settled().output_tokens) == ("done", 3)
