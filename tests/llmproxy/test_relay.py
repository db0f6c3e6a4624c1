"""A relay on a provider of bare sockets: shapes that the stand-in does not have."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from json import dumps

import pytest
from django.core.cache import cache

from accounts.models import Session, User
from accounts.sign_in import TokenPair
from licensing.callers import load_caller
from llmproxy import running
from llmproxy.calls import Call, admit
from llmproxy.chat import parse
from llmproxy.providers.protocol import ProviderError
from llmproxy.relay import DONE, Stream, stream
from tests.llmproxy.rawserver import CHUNKED, OK, Peer, Provider
from usage.models import UsageRecord

pytestmark = pytest.mark.django_db(transaction=True)
Play = Callable[[Callable[[Peer], None]], AbstractContextManager[Call]]


def chunk(text: str | None, **members: object) -> bytes:
    delta = {} if text is None else {"content": text}
    finish = None if text else "stop"
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: %s\n\n" % dumps({"choices": choices, **members}).encode()


@pytest.fixture
def play(pair: TokenPair, user: User, now: datetime, settings) -> Iterator[Play]:
    """A call to a provider that plays this script; its connection has been closed by the end."""
    caller = load_caller(user_id=user.pk, session_id=Session.objects.get().pk)
    assert caller is not None

    @contextmanager
    def played(script: Callable[[Peer], None]) -> Iterator[Call]:
        provider = Provider(lambda peer: (peer.request(), script(peer))[1], None)
        settings.LLM_BASE_URL = f"http://127.0.0.1:{provider.port}/v1"
        settings.LLM_PROVIDER = "openai"
        chat = parse({"messages": [{"role": "user", "content": "hello"}]}, stream=True)
        try:
            yield admit(caller=caller, chat=chat, request_id="", now=now)
            assert provider.errors == []
        finally:
            provider.stop()

    yield played
    running._running.clear()
    cache.clear()


def read(answer: Stream) -> bytes:
    try:
        return b"".join(answer)
    finally:
        answer.close()


@pytest.mark.parametrize("kind", [b"text/html", b"text/event-stream", b"application/json"])
@pytest.mark.parametrize("body", [b"<html>Sorry</html>", b'\n{"error": {"message": "no"}}'])
def test_what_is_no_stream_is_a_failure_before_the_first_byte(
    play: Play, kind: bytes, body: bytes
) -> None:
    def script(peer: Peer) -> None:
        head = OK + b"Content-Type: %s\r\nContent-Length: %d\r\n\r\n"
        peer.send(head % (kind, len(body)) + body)

    with play(script) as call, pytest.raises(ProviderError):
        stream(call)
    record = UsageRecord.objects.get()
    assert (record.end, record.output_tokens) == ("provider_failed", 0)


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "completion_tokens": None}])
def test_a_usage_that_says_nothing_is_none(play: Play, usage: object) -> None:
    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one", usage=usage))
        peer.chunk(chunk("two", usage=usage))
        peer.chunk(chunk(None, usage=usage) + DONE)
        peer.chunk(b"")

    with play(script) as call:
        assert read(stream(call)).endswith(DONE)
    record = UsageRecord.objects.get()
    assert (record.end, record.source, record.output_tokens) == ("done", "counted", 2)
    assert record.first_byte_at is not None


def test_the_last_of_cumulative_reports_counts_and_one_of_the_middle_does_not_hide_what_came_after(
    play: Play,
) -> None:
    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        usage = {"prompt_tokens": 50, "completion_tokens": 1}
        peer.chunk(chunk("one", usage=usage) + chunk("two") + chunk("three"))
        peer.reset()

    with play(script) as call:
        assert b"provider_error" in read(stream(call))
    record = UsageRecord.objects.get()
    assert (record.input_tokens, record.output_tokens, record.source) == (50, 3, "counted")


def test_one_that_is_told_to_end_at_once_says_so(play: Play) -> None:
    """As where a process may not wait for its streams any longer."""

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one"))
        peer.wait_until_gone()

    with play(script) as call:
        answer = stream(call)
        assert next(answer) == chunk("one")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(answer._exchange, "chunk", _told_to_end)
            assert b"service_unavailable" in next(answer)
        assert list(answer) == []
        answer.close()
    record = UsageRecord.objects.get()
    assert (record.end, record.source, record.output_tokens) == ("crashed", "counted", 1)


def _told_to_end(timeout: float) -> bytes:
    raise SystemExit


def test_nothing_of_a_call_is_left_when_it_is_over(play: Play) -> None:
    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(chunk("one") + chunk(None) + DONE)
        peer.chunk(b"")

    with play(script) as call:
        answer = stream(call)
        assert call.id in running._running
        read(answer)
        assert call.id not in running._running
