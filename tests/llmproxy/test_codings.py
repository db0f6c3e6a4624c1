"""Answers that come compressed although nobody asked for it: read and bounded like any other (``codings.ndjson``).

``label`` is the head's, ``made`` how the body is made, and ``of`` the public report of a row (owner/repository#number).
"""

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from config.platform.problems.problem import Problem
from llmproxy.calls import bodies
from llmproxy.calls.relay import complete, stream
from llmproxy.dialects import decoding
from llmproxy.dialects.protocol import ProviderError
from tests.llmproxy.test_relay import Play, chunk, play, read, usage_chunk
from tests.pairing import each_once
from tests.standins.raw_server import OK, Peer
from usage.models import UsageRecord

__all__ = ["play"]

pytestmark = pytest.mark.django_db(transaction=True)
Json = dict[str, Any]
ROWS: list[Json] = [
    json.loads(line)
    for line in Path(__file__).with_name("codings.ndjson").read_text().split("\n")
    if line
]
USAGE = {"prompt_tokens": 9, "completion_tokens": 2}
WHOLE = json.dumps(
    {
        "choices": [{"message": {"content": "Hello ✓"}, "finish_reason": "stop"}],
        "model": "m",
        "usage": USAGE,
    }
).encode()
EVENTS = [chunk("Hello ✓"), chunk(None), usage_chunk(USAGE), b"data: [DONE]\n\n"]
LIMIT = 50


def _deflated(data: bytes) -> bytes:
    made = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return made.compress(data) + made.flush()


MAKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "deflate": _deflated,
    "members": lambda data: (
        gzip.compress(gzip.decompress(data)[:9]) + gzip.compress(gzip.decompress(data)[9:])
    ),
    "padded": lambda data: data + bytes(512),
    "short": lambda data: data[:-8],
    "unknown": lambda data: b"\x8b\x01\x80" + data[::-1],
}


def coded(row: Json, body: bytes) -> bytes:
    for maker in row["made"]:
        body = MAKERS[maker](body)
    return body


def _named(value: Any) -> str:
    return value["name"] if isinstance(value, dict) else str(value)


def plays(row: Json, body: bytes, *, at_once: bool = True, status: bytes = b"200 OK") -> Any:
    """A provider that answers with a coded body, at once or a byte at a time."""
    made = coded(row, body)

    def script(peer: Peer) -> None:
        head = b"HTTP/1.1 %s\r\nContent-Encoding: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
        peer.send(head % (status, row["label"].encode()))
        for part in [made] if at_once else [made[at : at + 1] for at in range(len(made))]:
            peer.chunk(part)
        peer.chunk(b"")

    return script


@pytest.mark.parametrize(("row", "at_once"), each_once(ROWS, [True, False]), ids=_named)
def test_a_whole_answer_is_decoded_and_else_charged(play: Play, row: Json, at_once: bool) -> None:
    script = plays(row, WHOLE, at_once=at_once)
    with play(script, streamed=False, max_tokens=LIMIT) as call:
        if row["is_read"]:
            assert complete(call)["choices"][0]["message"]["content"] == "Hello ✓"
        else:
            with pytest.raises(ProviderError):
                complete(call)
    assert_charged(row)


@pytest.mark.parametrize(("row", "at_once"), each_once(ROWS, [True, False]), ids=_named)
def test_a_stream_is_decoded_and_else_charged(play: Play, row: Json, at_once: bool) -> None:
    with play(plays(row, b"".join(EVENTS), at_once=at_once), max_tokens=LIMIT) as call:
        if row["is_read"]:
            answer = read(stream(call))
            assert b"Hello" in answer
            assert answer.endswith(b"data: [DONE]\n\n")
        else:
            with pytest.raises(ProviderError):
                stream(call)
    assert_charged(row)


def assert_charged(row: Json) -> None:
    record = UsageRecord.objects.get(state="settled")
    expected = ("done", 9, 2) if row["is_read"] else ("answer_unread", record.input_tokens, LIMIT)
    assert (record.end, record.input_tokens, record.output_tokens) == expected


@pytest.mark.parametrize(("streamed", "row"), each_once([True, False], ROWS), ids=_named)
def test_a_refusal_is_decoded(play: Play, row: Json, streamed: bool) -> None:
    body = json.dumps({"error": {"message": "Your sentence is too green."}}).encode()
    script = plays(row, body, status=b"400 Bad Request")
    with (
        play(script, streamed=streamed) as call,
        pytest.raises(Problem) as raised,
    ):
        stream(call) if streamed else complete(call)
    assert raised.value.code == "provider_rejected"
    assert ("too green" in str(raised.value.detail)) == row["is_read"]
    assert UsageRecord.objects.get().output_tokens == 0


def test_each_event_is_passed_on_as_it_comes(play: Play) -> None:
    """A server flushes what it compresses with each event, and not the end of the body."""
    made = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)

    def script(peer: Peer) -> None:
        peer.send(OK + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in EVENTS:
            peer.chunk(made.compress(event) + made.flush(zlib.Z_SYNC_FLUSH))
        peer.wait_until_gone()

    with play(script) as call:
        assert read(stream(call)).endswith(b"data: [DONE]\n\n")
    assert UsageRecord.objects.get().output_tokens == 2


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_the_decompressed_size_of_a_body_is_bounded(
    play: Play, coding: str, streamed: bool
) -> None:
    """A bomb is too large, as a body of that length is, and nothing holds all of it."""
    bomb = b'{"choices": [{"message": {"content": "' + b" " * (8 * bodies.BYTES_BESIDE)
    row = {"label": coding, "made": ["gzip" if coding == "gzip" else "zlib"]}
    script = plays(row, b": " + bomb if streamed else bomb)
    with (
        play(script, streamed=streamed, max_tokens=LIMIT) as call,
        pytest.raises(ProviderError),
    ):
        stream(call) if streamed else complete(call)
    record = UsageRecord.objects.get(state="settled")
    assert (record.end, record.output_tokens) == ("answer_unread", LIMIT)
    assert bodies.rooms.taken == 0


def test_the_pieces_of_a_body_are_small_and_others_run_between_them(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(decoding.time, "sleep", pauses.append)
    text = "a" * 400_000
    whole = json.dumps({"choices": [{"message": {"content": text}}], "model": "m"}).encode()
    script = plays({"label": "gzip", "made": ["gzip"]}, whole)
    with play(script, streamed=False, max_tokens=100_000) as call:
        assert complete(call)["choices"][0]["message"]["content"] == text
    assert pauses.count(0) >= len(text) // decoding.PIECE


def test_a_body_beyond_the_limit_of_its_exchange_is_given_up(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmproxy.calls.attempt.MOST_READ", 2 * bodies.BYTES_BESIDE)
    bomb = b" " * (4 * bodies.BYTES_BESIDE)
    script = plays({"label": "gzip", "made": ["gzip"]}, bomb)
    with play(script, streamed=False, max_tokens=LIMIT) as call, pytest.raises(ProviderError):
        complete(call)
    assert UsageRecord.objects.get(state="settled").end == "answer_unread"
