"""SDKs repeat a failed call twice by themselves; they are told not to where a provider has answered it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json import dumps
from typing import Any

import pytest
from django.core.cache import cache
from rest_framework.test import APIClient

from llmproxy.calls import watch
from llmproxy.calls.relay import complete
from llmproxy.dialects.chat_answers import DONE
from llmproxy.dialects.protocol import ProviderError
from llmproxy.models import LanguageModel
from tests.llmproxy.test_ends import FAILURES, ended, last_events
from tests.llmproxy.test_failover import Routed, refuses, routed
from tests.llmproxy.test_usage import event
from tests.pairing import each_once
from tests.standins.raw_server import CHUNKED, Peer, Provider
from usage.models import UsageRecord

__all__ = ["routed"]

pytestmark = pytest.mark.django_db(transaction=True)
Script = Callable[[Peer], object]
SAID = [{"role": "user", "content": "hello"}]
USAGE = {"prompt_tokens": 4241, "completion_tokens": 0, "total_tokens": 4241}
BOTH = {**USAGE, "input_tokens": 4241, "output_tokens": 0}
# The address, dialect and body of a call on each surface.
CALLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "chat": ("chat/completions", "openai", {"messages": SAID}),
    "complete": ("complete", "openai", {"messages": SAID}),
    "chat at Anthropic": ("chat/completions", "anthropic", {"messages": SAID}),
    "responses": ("responses", "openai", {"input": "hello"}),
    "messages": ("messages", "anthropic", {"messages": SAID, "max_tokens": 9}),
    "embeddings": ("embeddings", "openai", {"model": "embed", "input": "hello"}),
}
STREAMED = ["chat", "chat at Anthropic", "responses", "messages"]


def breaks(peer: Peer) -> None:
    peer.send(CHUNKED)
    peer.close()


def whole(body: bytes) -> Script:
    return lambda peer: peer.answer(body)


def streams(*events: bytes) -> Script:
    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        for part in (*events, b""):
            peer.chunk(part)

    return script


# Whole answers and streams that fail after the status 200, before anything for the caller has come.
ANSWERED: dict[str, Script] = {
    # BerriAI/litellm#40252.
    "without choices": whole(dumps({"choices": [], "data": [], "usage": BOTH}).encode()),
    "empty": whole(b""),
    "no JSON": whole(b"{"),
    "a page": whole(b"<html>Sorry</html>"),
    "an error": whole(b'{"error": {"message": "no"}}'),
    "an error with usage": whole(dumps({"error": {"message": "no"}, "usage": BOTH}).encode()),
    "broken off": breaks,
}
STREAMS: dict[str, Script] = {
    "without choices": streams(event({"choices": [], "usage": USAGE}), DONE),
    "empty": streams(),
    "the end alone": streams(DONE),
    "a page": streams(b"<html>Sorry</html>"),
    "an error": streams(event({"error": {"message": "no"}})),
    "broken off": breaks,
}
UNANSWERED: dict[str, Script] = {
    "refused": lambda peer: peer.send(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
    "busy": lambda peer: peer.send(b"HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n"),
    "closed": lambda peer: peer.close(),
}


@pytest.fixture(autouse=True)
def _no_watch() -> Iterator[None]:
    yield
    watch._calls.clear()
    cache.clear()


@contextmanager
def asked(
    signed_in: APIClient, settings: Any, surface: str, script: Script, *, streamed: bool = False
) -> Iterator[Any]:
    """The answer to a call on a surface, whose provider plays a script."""
    LanguageModel.objects.create(name="embed", provider_name="embed")
    path, dialect, body = CALLS[surface]
    provider = Provider(lambda peer: (peer.request(), script(peer))[1], None)
    settings.LLM_BASE_URL = f"http://127.0.0.1:{provider.port}"
    settings.LLM_PROVIDER = dialect
    sent = {**body, "stream": True} if streamed else body
    try:
        yield signed_in.post(f"/v1/llm/{path}", sent, format="json")
        assert provider.errors == []
    finally:
        provider.stop()


@pytest.mark.parametrize(("failure", "surface"), each_once(ANSWERED, CALLS))
def test_a_whole_answer_that_fails_is_not_repeated(
    signed_in: APIClient, settings: Any, surface: str, failure: str
) -> None:
    with asked(signed_in, settings, surface, ANSWERED[failure]) as response:
        assert response.status_code >= 400
        assert response["x-should-retry"] == "false"
    if failure in ("without choices", "an error with usage"):
        assert UsageRecord.objects.get().input_tokens == 4241


@pytest.mark.parametrize(("failure", "surface"), each_once(STREAMS, STREAMED))
def test_a_stream_that_fails_before_its_first_byte_is_not_repeated(
    signed_in: APIClient, settings: Any, surface: str, failure: str
) -> None:
    script = STREAMS[failure]
    with asked(signed_in, settings, surface, script, streamed=True) as response:
        assert response.status_code >= 400
        assert response["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("streamed", "word", "surface"),
    each_once([False, True], [FAILURES[0][0], FAILURES[1][0]], STREAMED),
)
def test_a_failure_inside_an_answer_is_not_repeated(
    signed_in: APIClient, settings: Any, surface: str, word: str, streamed: bool
) -> None:
    script = whole(dumps(ended(surface, word)).encode())
    if streamed:
        script = streams(*last_events(surface, word))
    with asked(signed_in, settings, surface, script, streamed=streamed) as response:
        assert response.status_code == 502
        assert response["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("streamed", "failure", "surface"), each_once([False, True], UNANSWERED, STREAMED)
)
def test_a_call_that_no_provider_has_answered_may_be_repeated(
    signed_in: APIClient, settings: Any, surface: str, failure: str, streamed: bool
) -> None:
    script = UNANSWERED[failure]
    with asked(signed_in, settings, surface, script, streamed=streamed) as response:
        assert response.status_code >= 500
        assert "x-should-retry" not in response


@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_that_is_charged_by_estimate_alone_may_be_repeated(
    signed_in: APIClient, settings: Any, streamed: bool
) -> None:
    settings.LLM_READ_TIMEOUT = settings.LLM_FIRST_BYTE_TIMEOUT = 1
    settings.LLM_MAX_SECONDS = 1
    with asked(
        signed_in, settings, "chat", lambda peer: peer.wait_until_gone(), streamed=streamed
    ) as response:
        assert response.status_code == 504
        assert "x-should-retry" not in response
    assert UsageRecord.objects.get().source == "estimated"


def test_a_retry_would_pay_again_for_the_report_of_an_earlier_route(routed: Routed) -> None:
    def script(peer: Peer, _: bytes) -> None:
        peer.answer(dumps({"choices": [], "usage": USAGE}).encode())

    routed.add(script)
    routed.add(refuses(500))
    call = routed.admit(streamed=False)
    with pytest.raises(ProviderError):
        complete(call)
    assert call.advice() == {"x-should-retry": "false"}
