"""A corpus of requests over all routes, and what of each answer is a promise: everything but ids, times and wording."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import requests

from tests.served.shell import PATIENCE

UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"
REDIRECT = "http://127.0.0.1:43110/oauth/local/callback"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# Wording, which may change; what says where, what and how much may not.
WORDS = frozenset({"title", "detail", "description", "message", "summary"})
# Headers whose values differ from one answer to the next, or belong to the server.
VARYING = frozenset(
    {"date", "server", "x-request-id", "etag", "content-length", "last-modified", "expires"}
    # By the second, and by when the window of the rate limit began.
    | {f"x-ratelimit-{what}-requests" for what in ("remaining", "reset")}
    | {f"x-ratelimit-{what}-tokens" for what in ("remaining", "reset")}
)
SERVERS_OWN = frozenset({"connection", "transfer-encoding"})
FORMS = (
    # Names of what a test run has made so far.
    (re.compile(r"\b(person-|Client |Plan )\d+"), r"\1<number>"),
    (re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"), "<access token>"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00))?"), "<time>"),
    (re.compile(r"\b(csrftoken=)\w+; expires=[^;]+"), r"\1<value>; expires=<time>"),
    (re.compile(r"^\d{3,}$"), "<seconds>"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "<origin>"),
    (re.compile(r"[\w+/-]{80,}={0,2}"), "<base64>"),
    (re.compile(r"(?<![\w-])[\w-]{43}(?![\w-])"), "<43 characters>"),
)
WHOLE = {
    "id": "chatcmpl-corpus",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "provider-model",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello."},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14},
}
TOOL_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"for": "it"}'},
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request. ``label`` is its name in the corpus."""

    label: str
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    raw: bytes | None = None


def sent(session: requests.Session, base_url: str, request: Request) -> dict[str, Any]:
    """Returns the part of the answer that is a promise."""
    given = {"data": request.raw} if request.raw is not None else {"json": request.body}
    prepared = session.prepare_request(
        requests.Request(request.method, f"{base_url}{request.path}", **given)
    )
    if request.raw is not None:
        prepared.headers.setdefault("Content-Type", "application/json")
    prepared.headers.update(request.headers)
    response = session.send(prepared, timeout=PATIENCE, allow_redirects=False)
    return {
        "label": request.label,
        "status": response.status_code,
        "headers": {
            name.lower(): "<varies>" if name.lower() in VARYING else without_ids(value)
            for name, value in sorted(response.headers.items(), key=lambda each: each[0].lower())
            if name.lower() not in SERVERS_OWN
        },
        "body": promise(response),
    }


def promise(response: requests.Response) -> Any:
    """A body without ids, times and wording; of a page that it is one."""
    kind = response.headers.get("Content-Type", "").partition(";")[0]
    if kind == "text/event-stream":
        return [_event(block) for block in response.text.split("\n\n") if block.strip()]
    if kind.endswith("json") and response.content:
        return without_words(response.json())
    return f"<{kind}>" if response.content else ""


def without_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _placeholder(name, each) or without_words(each) for name, each in value.items()
        }
    if isinstance(value, list):
        return [without_words(each) for each in value]
    return without_ids(value) if isinstance(value, str) else value


def _placeholder(name: str, value: Any) -> str:
    if name in WORDS and isinstance(value, str):
        return "<words>"
    # A model's; a chunk's is that of the provider, which always says the same.
    return "<time>" if name == "created" and value != WHOLE["created"] else ""


def without_ids(text: str) -> str:
    for form, name in FORMS:
        text = form.sub(name, text)
    return text


def _event(block: str) -> Any:
    data = "".join(line.removeprefix("data: ") for line in block.splitlines())
    return without_words(json.loads(data)) if data.startswith("{") else data


def refused(schema: Mapping[str, Any], sign_in: Callable[[], str]) -> Iterator[Request]:
    """Every operation of the schema, called in the ways in which a call fails before any rule runs.

    ``sign_in`` makes an access token for each path, since some of these calls end a session.
    """
    for path, operations in sorted(schema["paths"].items()):
        access = sign_in()
        good = {"Authorization": f"Bearer {access}"}
        at = path.replace("{id}", UNKNOWN_ID).replace("{provider}", "local").replace("{slug}", "x")
        described = {name.upper(): operation for name, operation in operations.items()}
        for method in (each for each in METHODS if each not in described):
            yield _request("not allowed", method, path, at, good)
        for method, operation in sorted(described.items()):
            yield _request("no token", method, path, at, {})
            for name, value in (("basic", "Basic eA=="), ("forged", f"Bearer {access[:-6]}AAAAAA")):
                yield _request(name, method, path, at, {"Authorization": value})
            yield _request("nothing", method, path, at, good)
            yield _request("unacceptable", method, path, at, {**good, "Accept": "image/png"})
            yield _request("beneath", method, path, f"{at}/beneath", good)
            if "requestBody" in operation:
                yield from _unreadable(method, path, at, good)


def _unreadable(method: str, path: str, at: str, good: Mapping[str, str]) -> Iterator[Request]:
    bodies = {
        "no JSON": b'{"a": ',
        "a list": b"[]",
        "empty object": b"{}",
        "twice": b'{"a": 1, "a": 2}',
        "no UTF-8": b'{"a": "\xff"}',
        "wrong types": b'{"email": 1, "password": [], "refresh": {}, "events": 1, "messages": 1, "code": []}',
    }
    for name, raw in bodies.items():
        yield _request(name, method, path, at, good, raw)
    text = {**good, "Content-Type": "text/plain"}
    yield _request("text", method, path, at, text, b"{}")
    large = {**good, "Content-Length": str(9 * 1024 * 1024), "Connection": "close"}
    yield _request("too large", method, path, at, large, b"{")


def _request(
    why: str, method: str, path: str, at: str, headers: Mapping[str, str], raw: bytes | None = None
) -> Request:
    return Request(
        label=f"{method} {path}: {why}", method=method, path=at, headers=headers, raw=raw
    )


def model_calls(access: str) -> Iterator[Request]:
    """Calls that the provider answers well, badly and not at all, whole and streamed; and calls refused before it."""
    headers = {"Authorization": f"Bearer {access}"}
    for path in ("complete", "stream", "chat/completions"):
        for said in Provider.ANSWERS:
            yield _call(path, said, headers, {})
    usage = {"stream_options": {"include_usage": True}}
    yield _call("stream", "hello", headers, usage)
    yield _call("chat/completions", "hello", headers, {"stream": True, **usage})
    yield _call("chat/completions", "tools", headers, {"stream": True})
    for name, members in {
        "every number": {"temperature": 0.5, "top_p": 1, "presence_penalty": 0, "seed": 7},
        "stop": {"stop": ["a", "b"]},
        "limit": {"max_tokens": 16},
        "other limit": {"max_completion_tokens": 16},
        "both limits": {"max_tokens": 16, "max_completion_tokens": 16},
        "limit of nothing": {"max_tokens": 0},
        "hot": {"temperature": 3},
        "text as a number": {"temperature": "1"},
        "unknown member": {"colour": "red"},
        "unknown model": {"model": "nobody-has-it"},
        "model of a number": {"model": 1},
        "two answers": {"n": 2},
        "streamed on the wrong path": {"stream": True},
        "stored": {"store": True},
        "not stored": {"store": False, "user": "x", "metadata": {"a": "b"}},
        "JSON": {"response_format": {"type": "json_object"}},
        "unknown format": {"response_format": {"type": "xml"}},
        "a tool": {"tools": [{"type": "function", "function": {"name": "look"}}]},
        "a hosted tool": {"tools": [{"type": "web_search"}]},
        "a tool without name": {"tools": [{"type": "function", "function": {}}]},
        "choice of no tool": {"tool_choice": "required"},
        "audio": {"modalities": ["audio"]},
        "no messages": {"messages": []},
        "messages of nobody": {"messages": [{"content": "x"}]},
        "a stranger's role": {"messages": [{"role": "stranger", "content": "x"}]},
        "an image elsewhere": {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "https://a.test/b.png"}}
                    ],
                }
            ]
        },
        "an answer of a tool": {
            "messages": [
                {"role": "user", "content": "hello"},
                {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
                {"role": "tool", "tool_call_id": "call_1", "content": "hello"},
            ]
        },
    }.items():
        for path in ("complete", "chat/completions"):
            request = _call(path, "hello", headers, members)
            yield Request(
                label=f"POST /v1/llm/{path}: {name}",
                method="POST",
                path=request.path,
                headers=headers,
                body=request.body,
            )


def _call(path: str, said: str, headers: Mapping[str, str], members: dict[str, Any]) -> Request:
    extra = f" with {', '.join(members)}" if members else ""
    return Request(
        label=f"POST /v1/llm/{path}: provider says {said}{extra}",
        method="POST",
        path=f"/v1/llm/{path}",
        headers=headers,
        body={"messages": [{"role": "user", "content": said}], **members},
    )


class Provider(BaseHTTPRequestHandler):
    """A model provider that answers by the last message, and an OAuth server; both always say the same."""

    protocol_version = "HTTP/1.1"
    # The members of an answer: a status and a body, or pieces of a stream.
    ANSWERS = (
        "hello",
        "tools",
        "no usage",
        "status 400",
        "status 401",
        "status 403",
        "status 404",
        "status 422",
        "status 429",
        "status 500",
        "status 503",
        "no JSON",
        "nothing",
        "an error first",
        "an error later",
        "cut off",
    )

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[str]:
        """Its address."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), cls)
        server.daemon_threads = True
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()

    def do_POST(self) -> None:  # noqa: PLR0911 - a row each
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path in {"/token", "/revoke"}:
            return self._whole(
                200, {"access_token": "a" * 20, "refresh_token": "r" * 20, "token_type": "Bearer"}
            )
        asked = json.loads(body)
        said = asked["messages"][-1]["content"]
        if isinstance(said, list):
            said = "hello"
        if said.startswith("status "):
            error = {"message": f"It said {said}.", "type": "some_error", "code": "some_code"}
            return self._whole(int(said[7:]), {"error": error}, {"Retry-After": "7"})
        if asked.get("stream"):
            return self._stream(said)
        if said in {"no JSON", "cut off"}:
            return self._send(200, b'{"id": ', {}, length=7 if said == "no JSON" else 70)
        if said == "nothing":
            return self._send(200, b"", {})
        if said.startswith("an error"):
            return self._whole(200, {"error": {"message": "It failed.", "code": "failed"}})
        answer = json.loads(json.dumps(WHOLE))
        if said == "no usage":
            del answer["usage"]
        if said == "tools":
            answer["choices"][0]["message"] |= {"content": None, "tool_calls": [TOOL_CALL]}
            answer["choices"][0]["finish_reason"] = "tool_calls"
        return self._whole(200, answer)

    def _stream(self, said: str) -> None:
        chunk = {each: WHOLE[each] for each in ("id", "created", "model")}
        chunk["object"] = "chat.completion.chunk"

        def delta(members: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": members, "finish_reason": finish}
            return f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode()

        error = b'data: {"error": {"message": "It failed.", "code": "failed"}}\n\n'
        usage = (
            f"data: {json.dumps({**chunk, 'choices': [], 'usage': WHOLE['usage']})}\n\n".encode()
        )
        done = b"data: [DONE]\n\n"
        first, last = delta({"role": "assistant", "content": "Hel"}), delta({"content": "lo."})
        tool = delta({"role": "assistant", "tool_calls": [{"index": 0, **TOOL_CALL}]})
        pieces = {
            "tools": [tool, delta({}, "tool_calls"), usage, done],
            "no usage": [first, last, delta({}, "stop"), done],
            "no JSON": [b"data: {\n\n"],
            "nothing": [],
            "an error first": [error],
            "an error later": [first, error],
            "cut off": [first],
        }.get(said, [first, last, delta({}, "stop"), usage, done])
        self._send(200, b"".join(pieces), {"Content-Type": "text/event-stream"})

    def _whole(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, json.dumps(body).encode(), headers or {})

    def _send(
        self, status: int, body: bytes, headers: Mapping[str, str], *, length: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """The requests are those of the corpus."""
