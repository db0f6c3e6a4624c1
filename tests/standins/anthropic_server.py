"""A stand-in for Anthropic's Messages API on loopback, which checks requests and answers as the API does."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]

ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
MODEL = "claude-sonnet-4-5-20250929"
# Fresh, written to and read from a cache: 30 in all.
USAGE = {
    "input_tokens": 11,
    "cache_creation_input_tokens": 4,
    "cache_read_input_tokens": 15,
    "output_tokens": 42,
    "service_tier": "standard",
}


COUNTS = "/v1/messages/count_tokens"
COUNTED = 77


def message(
    *blocks: Json, stop_reason: str | None = "end_turn", usage: Json | None = USAGE, **more: Any
) -> Json:
    return {
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": list(blocks),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
        **more,
    }


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def thought(words: str) -> Json:
    return {"type": "thinking", "thinking": words, "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"}


def tool_use(name: str, arguments: Json, call_id: str = "toolu_01A09q90qw90lq917835lq9") -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def events_of(answer: Json) -> list[Json]:
    """A message as the events that stream it; the tokens of the output are told at the end, a seed at the start."""
    usage = answer["usage"] or {}
    begun = {**answer, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events: list[Json] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(answer["content"]):
        events += [{**event, "index": index} for event in _events_of_block(block)]
    events.insert(2, {"type": "ping"})
    delta = {"stop_reason": answer["stop_reason"], "stop_sequence": answer["stop_sequence"]}
    told = {"output_tokens": usage.get("output_tokens")}
    events.append({"type": "message_delta", "delta": delta, "usage": told})
    return [*events, {"type": "message_stop"}]


def _events_of_block(block: Json) -> list[Json]:
    match block["type"]:
        case "text":
            start = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": part} for part in _parts(block["text"])]
        case "thinking":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            words = _parts(block["thinking"])
            deltas = [{"type": "thinking_delta", "thinking": part} for part in words]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case "tool_use":
            start = {**block, "input": {}}
            # The first is empty, and the only one of a call without arguments.
            written = ["", *_parts(json.dumps(block["input"]) if block["input"] else "")]
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in written]
        case _:
            start, deltas = block, []
    return [
        {"type": "content_block_start", "content_block": start},
        *({"type": "content_block_delta", "delta": delta} for delta in deltas),
        {"type": "content_block_stop"},
    ]


def _parts(words: str) -> list[str]:
    return re.findall(r".{1,5}", words, re.DOTALL)


def as_stream(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def fault_of(body: Json) -> str | None:
    """The reason for which Anthropic refuses a request, None if it does not."""
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        return "max_tokens: Field required"
    if not 0 <= body.get("temperature", 1) <= 1:
        return "temperature: range: 0..1"
    budget = body.get("thinking", {}).get("budget_tokens")
    if budget is not None and not 1024 <= budget < body["max_tokens"]:
        return "thinking.budget_tokens: out of range"
    if "tool_choice" in body and not body.get("tools"):
        return "tool_choice: tools have to be given"
    turns = [{**turn, "content": _blocks(turn["content"])} for turn in spoken(body)]
    roles = [turn["role"] for turn in turns]
    if roles != [("user", "assistant")[index % 2] for index in range(len(roles))] or not roles:
        return "messages: roles must alternate, and begin with user"
    return next(filter(None, map(_fault_of_turn, [{}, *turns], turns)), None)


def spoken(body: Json) -> list[Json]:
    """The turns of user and assistant; instructions may stand between them."""
    return [turn for turn in body["messages"] if turn["role"] != "system"]


def _blocks(content: Any) -> list[Json]:
    return content if isinstance(content, list) else [text(content)]


def _fault_of_turn(before: Json, turn: Json) -> str | None:
    called = {b["id"] for b in before.get("content", ()) if b["type"] == "tool_use"}
    kinds = [block["type"] for block in turn["content"]]
    if len(called) != sum(b["type"] == "tool_use" for b in before.get("content", ())):
        return "messages: `tool_use` ids must be unique"
    results = {b["tool_use_id"] for b in turn["content"] if b["type"] == "tool_result"}
    if not kinds or any(b["type"] == "text" and not b["text"].strip() for b in turn["content"]):
        return "messages: text content blocks must contain non-whitespace text"
    if called != results or kinds[: len(results)] != ["tool_result"] * len(results):
        return "messages: `tool_use` ids were found without `tool_result` blocks immediately after"
    if not all(map(ID.fullmatch, called)):
        return "messages: tool_use.id: String should match pattern"
    return None


class MessagesServer:
    """Gives ``replies`` in turn, the last one again and again; ``bodies`` are the requests.

    A reply is a message, or ``(status, error type, message, headers)``. Of a stream only the first
    ``events`` are sent, if set, and then those of ``extra``.
    """

    def __init__(self, *replies: Any, api_key: str) -> None:
        self.replies = list(replies)
        self.api_key = api_key
        self.bodies: list[Json] = []
        # Set if the server counts tokens.
        self.counts = True
        # The betas of the newest request.
        self.betas: list[str] = []
        self.events: int | None = None
        self.extra: list[Json] = []
        # A stream stops after its first event until this is set.
        self.flows = threading.Event()
        self.flows.set()
        self.server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("_", (_Handler,), {"played": self})
        )
        self.server.daemon_threads = False
        self.base_url = f"http://127.0.0.1:{self.server.server_port}"

    def reply(self) -> Any:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


class _Handler(BaseHTTPRequestHandler):
    played: MessagesServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if (refused := self._refused(body)) is not None:
            self._refuse(*refused)
            return
        self.played.bodies.append(body)
        self.played.betas = [
            each for each in self.headers.get("anthropic-beta", "").split(",") if each
        ]
        reply = self.played.reply()
        if self.path == COUNTS:
            self._answer(200, {"input_tokens": COUNTED}, {})
        elif isinstance(reply, tuple):
            self._refuse(*reply)
        elif body.get("stream"):
            self._stream(reply)
        else:
            self._answer(200, reply, {})

    def _refused(self, body: Json) -> tuple[int, str, str, dict[str, str]] | None:
        if self.path != "/v1/messages" and not (self.path == COUNTS and self.played.counts):
            return 404, "not_found_error", "Not found", {}
        if self.headers["x-api-key"] != self.played.api_key or "Authorization" in self.headers:
            return 401, "authentication_error", "invalid x-api-key", {}
        if self.headers["anthropic-version"] not in ("2023-06-01", "2026-10-21"):
            return 400, "invalid_request_error", "anthropic-version: header is required", {}
        fault = fault_of(body if self.path != COUNTS else {"max_tokens": 1, **body})
        return None if fault is None else (400, "invalid_request_error", fault, {})

    def _refuse(self, status: int, kind: str, words: str, headers: dict[str, str]) -> None:
        error = {"type": "error", "error": {"type": kind, "message": words}}
        self._answer(status, {**error, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}, headers)

    def _answer(self, status: int, answer: Json, headers: dict[str, str]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("anthropic-organization-id", "org-of-ours")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, answer: Json) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        for event in [*events_of(answer)[: self.played.events], *self.played.extra]:
            self.wfile.write(as_stream(event))
            assert self.played.flows.wait(60)

    def log_message(self, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def messages_server(*replies: Any, api_key: str) -> Iterator[MessagesServer]:
    """A running server, until the block ends."""
    played = MessagesServer(*replies, api_key=api_key)
    thread = threading.Thread(target=played.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield played
    finally:
        played.server.shutdown()
        thread.join()
        played.server.server_close()
