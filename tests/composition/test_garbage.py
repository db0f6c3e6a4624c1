"""A request that is over frees what it used by itself, and nothing of it waits for the collector of garbage.

That one looks through all that is alive, and stops every stream of its process meanwhile.
"""

import gc
from collections.abc import Iterator
from datetime import UTC, datetime
from json import dumps
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from django.http import HttpRequest, HttpResponseBase
from django.test import RequestFactory
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.sign_in import TokenPair
from config.entrance import Entrance
from config.together import _Place
from llmproxy.calls import Call
from tests.llmproxy.rawserver import CHUNKED, Peer, Provider

pytestmark = pytest.mark.django_db(transaction=True)
OURS = (HttpRequest, HttpResponseBase, Request, APIView, Call, _Place)
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
    while asked := peer.request():
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


@pytest.mark.parametrize(
    ("status", "method", "path", "body", "parts"),
    [
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
    told: list[str] = []

    def call() -> None:
        asked = body() if callable(body) else body
        told.append(called(entrance, method, path, asked, token=pair.access, parts=parts))

    def in_its_thread() -> None:
        # As a client's: with no connection of its own to the database from before.
        thread = Thread(target=call)
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
        left = [
            type(each).__name__ for each in gc.garbage if path in OFTEN or isinstance(each, OURS)
        ]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert told[1].startswith(status)
    assert left == []
