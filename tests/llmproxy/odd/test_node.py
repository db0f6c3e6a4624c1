"""Every odd answer through the SDKs for Node of OpenAI and Anthropic, as they come from the service."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from llmproxy.requests.call_request import Surface
from tests.llmproxy.odd import relaying
from tests.llmproxy.odd.listening import REASONS, STATUSES, heard_of_blocks
from tests.llmproxy.odd.rows import Heard, Row, arguments, cases, named
from tests.served.node import Say, running_script

pytestmark = pytest.mark.wire

ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


class Service(ThreadingHTTPServer):
    """Answers each call with the same bytes."""

    body, kind = b"", ""


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", self.server.kind)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *args: Any) -> None:
        pass


class Node:
    """The SDKs, and the service that they ask."""

    def __init__(self, service: Service, openai: Say, anthropic: Say) -> None:
        self._service, self._openai, self._anthropic = service, openai, anthropic

    def heard(self, surface: Surface, body: bytes, *, stream: bool, **asked: Any) -> Heard:
        self._service.body = body
        self._service.kind = "text/event-stream" if stream else "application/json"
        if surface is Surface.MESSAGES:
            ask = {**ASKED, "max_tokens": 9}
            message = self._anthropic(do="stream" if stream else "whole", ask=ask)["message"]
            return heard_of_blocks(message["content"], REASONS[message["stop_reason"]])
        given = ASKED if surface is Surface.CHAT else {"model": "m", "input": ["a", "b"]}
        return heard_of_answer(self._openai, surface, {**given, **asked}, stream=stream)


def heard_of_answer(say: Say, surface: Surface, ask: dict[str, Any], *, stream: bool) -> Heard:
    """Returns the reading of an answer by OpenAI's SDK, as far as its script reports it."""
    match surface:
        case Surface.RESPONSES:
            said = say(do="respond stream" if stream else "respond", ask=ask)
            text = said["whole"] if stream else said["text"]
            return Heard(text=text, finish=STATUSES[said["status"]])
        case Surface.EMBEDDINGS:
            return Heard(vectors=say(do="embed", ask=ask)["vectors"])
    return heard_of_choice(say(do="helper" if stream else "complete", ask=ask)["choice"])


def heard_of_choice(choice: dict[str, Any]) -> Heard:
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return Heard(
        text=message.get("content") or "",
        refusal=message.get("refusal") or "",
        calls=[[call["name"], arguments(call["arguments"])] for call in calls],
        finish=choice["finish_reason"],
    )


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    service = Service(("127.0.0.1", 0), Handler)
    Thread(target=service.serve_forever, args=(0.02,), daemon=True).start()
    base = f"http://127.0.0.1:{service.server_port}"
    with ExitStack() as stack:
        stack.callback(service.server_close)
        stack.callback(service.shutdown)
        scripts = (running_script(name, base, "k") for name in ("openai.mjs", "anthropic.mjs"))
        yield Node(service, *map(stack.enter_context, scripts))


def expected(row: Row, surface: Surface) -> Heard:
    """Returns the expected reading, as far as the scripts report it."""
    told = json.loads(json.dumps(vars(row.heard)))
    if surface is not Surface.MESSAGES:
        told["thought"] = ""
    if surface is Surface.RESPONSES:
        told |= {
            "calls": [],
            "finish": "stop" if told["finish"] == "tool_calls" else told["finish"],
        }
    return Heard(**told)


@pytest.mark.parametrize(
    ("row", "surface"), [case for case in cases("events") if not case[0].fails], ids=named
)
def test_a_stream_is_read(node: Node, row: Row, surface: Surface) -> None:
    told = relaying.streamed(row, surface, row.events())
    assert node.heard(surface, told.body, stream=True) == expected(row, surface)


@pytest.mark.parametrize(
    ("row", "surface"), [case for case in cases("whole") if not case[0].fails], ids=named
)
def test_a_whole_answer_is_read(node: Node, row: Row, surface: Surface) -> None:
    told = relaying.whole(row, surface, row.whole())
    wants = row.asked.get("encoding_format", "float")
    asked = {} if wants == "base64" else {"encoding_format": wants}
    assert node.heard(surface, told.body, stream=False, **asked) == expected(row, surface)


@pytest.mark.parametrize(
    ("row", "surface"),
    [case for case in cases("events") if case[0].line["kind"] == "as documented"],
    ids=named,
)
def test_keep_alives_between_events_are_none(node: Node, row: Row, surface: Surface) -> None:
    parts = [part for event in row.events() for part in (b": waiting\n\n", event)]
    told = relaying.streamed(row, surface, parts)
    assert told.body.count(b": keep-alive\n") >= len(parts) // 2 - 1
    assert node.heard(surface, told.body, stream=True) == expected(row, surface)
