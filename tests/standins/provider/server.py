"""Routes of the stand-in provider, the delivery of answers with their faults, and counters for tests."""

import errno
import json
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import gevent
from gevent.event import Event
from gevent.pywsgi import WSGIHandler
from gevent.socket import wait_read

from tests.standins.provider import embeddings, messages, responses
from tests.standins.provider.answers import Answer, Json, dump, event, text_of
from tests.standins.provider.behaviour import split_directive
from tests.standins.provider.work import Work

MODELS = ("stand-in-small", "stand-in-large", "stand-in-embedding")
SURFACES: dict[str, type[Answer]] = {
    "/v1/chat/completions": Answer,
    "/v1/responses": responses.Response,
    "/v1/messages": messages.Message,
    "/v1/embeddings": embeddings.Embeddings,
}
COUNTERS = ("requests", "requests_open", "streams_open", "streams_aborted")
# Headers of real providers, which a proxy must keep to itself.
HEADERS = {"openai-organization": "stand-in", "x-ratelimit-remaining-requests": "9999"}
PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>\n"
# status: code and message that a proxy must keep to itself.
USUAL = {
    401: ("invalid_api_key", "Incorrect API key provided."),
    403: ("unsupported_country_region_territory", "Country, region, or territory not supported"),
    429: ("rate_limit_exceeded", "Rate limit reached for requests per minute."),
}


class ApiError(Exception):
    """A response other than 200 in the shape of OpenAI's errors."""

    def __init__(
        self, status: int, message: str = "", code: str | None = None, retry_after: str = ""
    ) -> None:
        usual_code, usual_message = USUAL.get(status, (None, f"The stand-in answers {status}."))
        kind = "server_error" if status >= 500 else "invalid_request_error"
        error = {"message": message or usual_message, "type": kind, "param": None}
        self.status = status
        self.body = {"error": {**error, "code": code or usual_code}}
        self.headers = {"Retry-After": retry_after} if retry_after else {}


IN_BAND = ApiError(500).body
HUGE = {"index": 0, "delta": {"content": "x" * 5 * 1024 * 1024}, "finish_reason": None}
# fault: the event that is sent among the others.
ODD_EVENTS = {
    "malformed": b'data: {"id":"chatcmpl-broken","choices":[{"delta":{"con\n\n',
    "error": event(IN_BAND),
    "gigantic": event({"object": "chat.completion.chunk", "choices": [HUGE]}),
}


class Handler(WSGIHandler):  # type: ignore[misc]  # gevent has no types
    """A connection's handler that lets the application break the connection."""

    def handle(self) -> None:
        # A small answer is two packets, and the second would wait until the first is acknowledged.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().handle()

    def get_environ(self) -> Json:
        return {**super().get_environ(), "standin.socket": self.socket}


class Call:
    """One request and the ways to respond to it."""

    def __init__(self, environ: Json, start_response: Callable[..., Any]) -> None:
        self.environ, self.trace = environ, environ.get("HTTP_TRACEPARENT")
        self.route = (environ["REQUEST_METHOD"], environ["PATH_INFO"])
        self._socket: socket.socket = environ["standin.socket"]
        self._start = start_response

    def header_names(self) -> list[str]:
        sent = {name: value for name, value in self.environ.items() if value}
        own = sent.keys() & {"CONTENT_LENGTH", "CONTENT_TYPE"}
        names = {name.removeprefix("HTTP_") for name in sent if name.startswith("HTTP_")} | own
        return sorted(name.replace("_", "-").lower() for name in names)

    def start(self, status: int, kind: str, headers: Json) -> Callable[[bytes], None]:
        """Begins a response; the result writes parts of its body, the first time with the headers."""
        write: Callable[[bytes], None] = self._start(
            f"{status} {HTTPStatus(status).phrase}", [("Content-Type", kind), *headers.items()]
        )
        return write

    def respond(self, status: int, body: Any, headers: Json = HEADERS) -> None:
        """A whole response in JSON, unless the body is bytes."""
        raw = body if isinstance(body, bytes) else dump(body)
        kind = "text/html" if body is PAGE else "application/json"
        self.start(status, kind, {"Content-Length": str(len(raw)), **headers})(raw)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raises ConnectionError inside the block as soon as the client leaves."""
        watch = gevent.spawn(_end_with_client, self._socket, gevent.getcurrent())
        try:
            yield
        finally:
            watch.kill()

    def break_off(self, fault: str) -> None:
        """Ends the response where it stands; with ``truncate`` as if it were whole."""
        if fault == "stall":
            Event().wait()
        if fault == "reset":
            linger = struct.pack("ii", 1, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if fault != "truncate":
            raise ConnectionResetError(errno.ECONNRESET, "The stand-in has left.")


def _end_with_client(sock: socket.socket, answering: gevent.Greenlet) -> None:
    """A client has nothing to say while it waits for an answer, except that it leaves."""
    wait_read(sock.fileno())
    answering.kill(ConnectionResetError(errno.ECONNRESET, "The client has left."), block=False)


class Provider:
    """A WSGI application with counters. It accepts one key alone, if there is one."""

    def __init__(self, api_key: str | None) -> None:
        self.api_key = api_key
        self.open: Counter[str] = Counter()
        self.reset()

    def reset(self) -> None:
        """Forgets everything but what is open now."""
        self.counted: Counter[str] = Counter()
        self.last: Json | None = None
        self.go = Event()
        self.work: dict[str, list[Json]] = {}

    def __call__(self, environ: Json, start_response: Callable[..., Any]) -> list[bytes]:
        call = Call(environ, start_response)
        try:
            self._answer(call)
        except ApiError as error:
            call.respond(error.status, error.body, error.headers)
        return []

    def _answer(self, call: Call) -> None:
        match call.route:
            case ("GET", "/__stats"):
                counted = self.counted + self.open
                call.respond(200, {name: counted[name] for name in COUNTERS})
            case ("GET", "/__last"):
                call.respond(200, self.last)
            case ("GET", "/__work"):
                call.respond(200, self.work)
            case ("POST", "/__go"):
                self.go.set()
                call.respond(200, {})
            case ("POST", "/__reset"):
                self.reset()
                call.respond(200, {})
            case ("GET", "/v1/models"):
                self._authorise(call)
                own = {"object": "model", "created": 0, "owned_by": "stand-in"}
                models = [{"id": name, **own} for name in MODELS]
                call.respond(200, {"object": "list", "data": models})
            case ("POST", path) if path in SURFACES:
                with self._counted("requests"):
                    self._complete(call, SURFACES[path])
            case _:
                raise ApiError(404, f"Invalid URL ({' '.join(call.route)})")

    def _authorise(self, call: Call) -> None:
        given = call.environ.get("HTTP_AUTHORIZATION") or call.environ.get("HTTP_X_API_KEY", "")
        key = given.removeprefix("Bearer ")
        if not key or self.api_key not in (None, key):
            raise ApiError(401)

    @contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        self.counted[name] += 1
        self.open[f"{name}_open"] += 1
        try:
            yield
        except ConnectionError:
            self.counted[f"{name}_aborted"] += 1
            raise
        finally:
            self.open[f"{name}_open"] -= 1

    def _complete(self, call: Call, made: type[Answer]) -> None:
        self._authorise(call)
        body = json.loads(call.environ["wsgi.input"].read())
        self.last = {"body": body, "header_names": call.header_names(), "trace": call.trace}
        answer = read(body, made)
        work = Work(answer)
        try:
            self._carry_out(call, answer, work)
        finally:
            if answer.asked.mark:
                self.work.setdefault(answer.asked.mark, []).append(work.told())

    def _carry_out(self, call: Call, answer: Answer, work: Work) -> None:
        body, asked = answer.body, answer.asked
        with call.watched():
            work.think(asked.first)
            if asked.held == "yes":
                self.go.wait()
            if asked.fault.startswith("status:"):
                status = int(asked.fault.removeprefix("status:"))
                raise ApiError(status, asked.message, retry_after=asked.retry_after)
            if asked.fault == "html":
                call.respond(502, PAGE)
                return
            if body.get("stream"):
                with self._counted("streams"):
                    _stream(call, answer, work)
                return
            whole = _whole(call, answer, work)
        work.reported = not asked.fault and asked.usage == "yes"
        # Watched no more: as soon as the client has it, the client may send its next request.
        call.respond(200, whole)


def read(body: Json, made: type[Answer]) -> Answer:
    """The answer to a request; raises the error by which OpenAI refuses what it does not take."""
    if body.get("model") not in MODELS:
        raise ApiError(404, f"The model `{body.get('model')}` does not exist.", "model_not_found")
    if unknown := body.keys() - made.MEMBERS:
        raise ApiError(400, f"Unrecognized request argument supplied: {', '.join(sorted(unknown))}")
    try:
        chat = made.as_chat(body)
    except ValueError as error:
        raise ApiError(400, str(error)) from None
    messages = chat["messages"][::-1]
    said = next((text_of(each) for each in messages if each["role"] == "user"), "")
    try:
        asked, question = split_directive(said)
    except ValueError as error:
        raise ApiError(400, f"Invalid directive: {error}", "invalid_directive") from None
    return made(chat, question, asked)


def _whole(call: Call, answer: Answer, work: Work) -> bytes:
    """The body of an answer in one piece, unless the connection is broken before its end."""
    asked = answer.asked
    work.make_all()
    raw = dump(IN_BAND if asked.fault == "error" else answer.completion())
    if asked.send:
        raw = b"".join(asked.writes())
    half = raw[: len(raw) // 2]
    if asked.fault in {"reset", "cut", "stall"}:
        if asked.after:
            call.start(200, "application/json", {"Content-Length": str(len(raw))})(half)
        call.break_off(asked.fault)
    return half if asked.fault in {"truncate", "malformed"} else raw


def _stream(call: Call, answer: Answer, work: Work) -> None:
    asked = answer.asked
    write = call.start(200, "text/event-stream; charset=utf-8", HEADERS)
    due = time.monotonic()
    for number, each in enumerate(asked.writes() if asked.send else answer.events(due)):
        if number == asked.after and asked.pause:
            work.think(asked.pause)
            due += asked.pause
        if number == asked.after and asked.fault:
            if asked.fault not in ODD_EVENTS:
                write(b"")
                call.break_off(asked.fault)
                return
            write(ODD_EVENTS[asked.fault])
        write(each)
        work.sent(number)
        # By the clock and not by the last event, so that one that is late does not delay all others.
        due += asked.delay if number else 0
        gevent.sleep(max(0.0, due - time.monotonic()))
