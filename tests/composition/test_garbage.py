"""A request that is over frees what it used by itself, and nothing of it waits for the collector of garbage.

That one looks through all that is alive, and stops every stream of its process meanwhile.
"""

import gc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from json import dumps
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from django.http import HttpRequest, HttpResponseBase
from django.test import RequestFactory
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.key_ring import read_rows
from accounts.models import User
from accounts.sign_in import TokenPair
from config.entrance import Entrance
from config.problems import Problem
from config.together import _Place
from llmproxy.calls import Call
from tests.standins.raw_server import CHUNKED, Peer, Provider
from usage.models import Override

pytestmark = pytest.mark.django_db(transaction=True)
OURS = (HttpRequest, HttpResponseBase, Request, APIView, Call, _Place, Problem)
# What is asked most leaves nothing at all.
OFTEN = {"/v1/license/status", "/v1/llm/complete", "/v1/llm/stream"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 1}
WHOLE = {"choices": [{"message": {"content": "yes"}}], "usage": USAGE}
PIECES = [
    {"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE},
]
MESSAGES = {"messages": [{"role": "user", "content": "hello"}]}


def events() -> dict[str, Any]:
    opened = {"name": "opened", "occurred_at": datetime.now(UTC).isoformat()}
    return {"events": [{"id": str(uuid4()), **opened}]}


def provide(peer: Peer) -> None:
    """Answers, but for a prompt that names how it shall fail."""
    while asked := peer.request():
        if b"unreadable" in asked:
            peer.send(b"HTTP/9\r\n\r\n")
            return
        if b"refused" in asked:
            peer.send(b"HTTP/1.1 400 No\r\nContent-Length: 2\r\n\r\n{}")
            continue
        if b"broken" in asked:
            peer.send(CHUNKED)
            peer.chunk(b"data: %s\n\n" % dumps(PIECES[0]).encode())
            peer.close()
            return
        if b'"stream":true' not in asked.replace(b" ", b""):
            peer.answer(dumps(WHOLE).encode())
            continue
        peer.send(CHUNKED)
        for piece in PIECES:
            peer.chunk(b"data: %s\n\n" % dumps(piece).encode())
        peer.chunk(b"data: [DONE]\n\n")
        peer.send(b"0\r\n\r\n")


@pytest.fixture
def entrance(settings) -> Iterator[Entrance]:
    provider = Provider(provide, None)
    settings.LLM_BASE_URL = f"http://127.0.0.1:{provider.port}/v1"
    settings.LLM_PROVIDER = "openai"
    yield Entrance()
    provider.stop()


def called(
    entrance: Entrance, method: str, path: str, body: Any, *, token: str, parts: int | None
) -> str:
    """As the server calls it, for the status; of a stream only so many parts are taken before its client leaves."""
    factory = RequestFactory(HTTP_AUTHORIZATION=f"Bearer {token}")
    data = b"" if body is None else dumps(body).encode()
    kind = "application/json"
    environ = factory.generic(method, path, data, content_type=kind, secure=True).environ
    told: list[str] = []
    answer: Any = entrance(environ, lambda status, _: told.append(status))
    for number, _ in enumerate(answer, 1):
        if number == parts:
            break
    answer.close()
    return told[0]


def left_by(call: Callable[[], str], *, everything: bool) -> tuple[str, list[str]]:
    """What the second of two calls said, and what of it, or of what is ours, waits for the collector."""
    told: list[str] = []

    def in_its_thread() -> None:
        # As a client's: with no connection of its own to the database from before.
        thread = Thread(target=lambda: told.append(call()))
        thread.start()
        thread.join()

    # What is made once for the process is made by the first.
    in_its_thread()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        in_its_thread()
        gc.collect()
        left = [type(each).__name__ for each in gc.garbage if everything or isinstance(each, OURS)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    return told[1], left


def saying(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


FAILURES = [
    (status, "POST", path, saying(how), None)
    for path in ("/v1/llm/complete", "/v1/llm/stream")
    for status, how in (("502", "unreadable"), ("400", "refused"))
]


@pytest.mark.parametrize(
    ("status", "method", "path", "body", "parts"),
    [
        *FAILURES,
        ("502", "POST", "/v1/llm/complete", saying("broken"), None),
        ("200", "POST", "/v1/llm/stream", saying("broken"), None),
        ("200", "GET", "/v1/license/status", None, None),
        ("200", "POST", "/v1/llm/complete", MESSAGES, None),
        ("200", "POST", "/v1/llm/stream", MESSAGES, None),
        ("200", "POST", "/v1/llm/stream", MESSAGES, 1),
        ("200", "GET", "/v1/usage/me", None, None),
        ("200", "GET", "/v1/auth/me", None, None),
        ("202", "POST", "/v1/telemetry", events, None),
        ("404", "GET", "/v1/updates/manifest?ch=stable&os=darwin", None, None),
        ("404", "GET", "/v1/nowhere", None, None),
    ],
)
def test_a_request_that_is_over_is_gone(
    entrance: Entrance,
    pair: TokenPair,
    status: str,
    method: str,
    path: str,
    body: Any,
    parts: int | None,
) -> None:
    def call() -> str:
        asked = body() if callable(body) else body
        return called(entrance, method, path, asked, token=pair.access, parts=parts)

    told, left = left_by(call, everything=path in OFTEN)
    assert told.startswith(status)
    assert left == []


def test_keys_are_read_every_few_seconds_and_leave_nothing(pair: TokenPair) -> None:
    told, left = left_by(lambda: str(len(read_rows())), everything=True)
    assert (told, left) == ("1", [])


@pytest.mark.parametrize("path", ["/v1/llm/complete", "/v1/llm/stream"])
def test_a_call_that_no_provider_takes_is_gone(
    entrance: Entrance, pair: TokenPair, settings, path: str
) -> None:
    settings.LLM_BASE_URL = "http://127.0.0.1:1/v1"
    settings.LLM_KEEPALIVE_SECONDS = settings.LLM_READ_TIMEOUT = 1.0

    def call() -> str:
        return called(entrance, "POST", path, MESSAGES, token=pair.access, parts=None)

    told, left = left_by(call, everything=True)
    assert told.startswith(("502", "503"))
    assert left == []


@pytest.mark.parametrize("path", ["/v1/llm/complete", "/v1/llm/stream"])
def test_a_call_that_a_cap_refuses_is_gone(
    entrance: Entrance, user: User, pair: TokenPair, path: str, now: datetime
) -> None:
    Override.objects.create(
        user=user,
        monthly_input_tokens=1,
        starts_at=now - timedelta(days=1),
        ends_at=now + timedelta(days=1),
        reason="A test.",
    )

    def call() -> str:
        return called(entrance, "POST", path, MESSAGES, token=pair.access, parts=None)

    told, left = left_by(call, everything=False)
    assert told.startswith("429")
    assert left == []
