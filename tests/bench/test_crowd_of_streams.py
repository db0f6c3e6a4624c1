"""The load of streams: what it says of a crowd is what became of it."""

import json
from collections.abc import Callable

import pytest

from tests.bench.crowd_of_streams import Crowd, Seen, read
from tests.standins.provider_process import Provider, provider, provider_process

__all__ = ["provider", "provider_process"]

CHUNKS, SECONDS = 5, 0.02
ASKED = {"role": "user", "content": f"[[stand-in: tokens={CHUNKS} delay={SECONDS} clock=yes]]"}
BODY = {"model": "stand-in-small", "messages": [ASKED], "stream": True}


@pytest.fixture
def crowd(provider: Provider) -> Callable[..., Seen]:
    def seen(**more: object) -> Seen:
        plan: dict[str, object] = {
            "host": provider.host,
            "port": provider.port,
            "path": "/v1/chat/completions",
            "body": json.dumps(BODY),
            "tokens": ["one", "two"],
            "streams": 8,
            "chunks": CHUNKS,
            "ramp": 0.0,
        }
        return read(Crowd(**{**plan, **more}))  # type: ignore[arg-type]

    return seen


def test_whole_streams_are_done_and_every_chunk_has_its_delay(crowd: Callable[..., Seen]) -> None:
    seen = crowd()
    assert (seen.done, seen.failures) == (8, {})
    assert seen.chunks == 8 * CHUNKS
    assert seen.most_at_once == 8
    assert seen.seconds >= CHUNKS * SECONDS
    assert 0 < seen.delay_p50 <= seen.delay_p99 <= seen.delay_most
    assert 0 < seen.first_p50 <= seen.first_p99


def test_a_stream_with_fewer_chunks_than_expected_has_failed(crowd: Callable[..., Seen]) -> None:
    seen = crowd(chunks=CHUNKS + 1)
    assert (seen.done, seen.failures) == (0, {"cut short": 8})


def test_a_stream_that_does_not_come_in_time_has_stalled(crowd: Callable[..., Seen]) -> None:
    assert crowd(patience=0.0).failures == {"stalled": 8}


def test_nobody_there_is_a_failure(crowd: Callable[..., Seen]) -> None:
    assert crowd(port=9).failures == {"ConnectionRefusedError": 8}
