"""A second stand-in for a model provider, of Anthropic's dialect, with the words of the first.

`python -m tests.standins.messages_provider --port 0` serves `POST /v1/messages` and `POST /v1/messages/count_tokens`
behind any key, and prints `listening on http://127.0.0.1:PORT` once it accepts connections. It ends on SIGTERM or
SIGINT.
"""

import argparse
import json
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.standins.anthropic_server import (
    as_stream,
    events_of,
    fault_of,
    message,
    spoken,
    text,
    tool_use,
)
from tests.standins.provider.answers import Answer, Json, split
from tests.standins.provider.behaviour import split_directive


def answer_to(body: Json) -> Json:
    """The message that answers a request; the limit of tokens cuts its text, never a tool call."""
    last = spoken(body)[-1]
    said = _texts(last["content"])
    asked, question = split_directive(said)
    tools = [tool for tool in body.get("tools") or () if "input_schema" in tool]
    functions = [
        {"function": {"name": each["name"], "parameters": each["input_schema"]}} for each in tools
    ]
    choice = body.get("tool_choice", {}).get("type", "auto")
    is_result = any(block.get("type") == "tool_result" for block in _blocks(last))
    calls = bool(tools) and choice != "none" and not (is_result and choice == "auto")
    plain = {
        "model": body["model"],
        "messages": [{"role": "tool" if is_result else "user", "content": question}],
        **({"tools": functions} if calls else {"max_tokens": body["max_tokens"]}),
    }
    made = Answer(plain, question, asked)
    words = "".join(made.pieces)
    if calls:
        block, reason = tool_use(functions[0]["function"]["name"], json.loads(words)), "tool_use"
    else:
        block = text(words)
        reason = "max_tokens" if made.finish == "length" else "end_turn"
    usage = {"input_tokens": tokens_of(body), "output_tokens": len(made.pieces)}
    return message(block, stop_reason=reason, usage=usage, model=body["model"])


def tokens_of(body: Json) -> int:
    texts = [_texts(body.get("system") or ""), json.dumps(body.get("tools") or "")]
    texts += [_texts(turn["content"]) for turn in body["messages"]]
    return max(1, sum(len(split(each)) for each in texts))


def _blocks(turn: Json) -> list[Json]:
    content = turn["content"]
    return content if isinstance(content, list) else [text(content)]


def _texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(_texts(block.get("text") or block.get("content") or "") for block in content)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not (self.headers["x-api-key"] or self.headers["Authorization"]):
            self._refuse(401, "authentication_error", "invalid x-api-key")
        elif self.path == "/v1/messages/count_tokens":
            self._answer(200, {"input_tokens": tokens_of(body)})
        elif self.path != "/v1/messages":
            self._refuse(404, "not_found_error", "Not found")
        elif fault := fault_of(body):
            self._refuse(400, "invalid_request_error", fault)
        elif body.get("stream"):
            self._stream(answer_to(body))
        else:
            self._answer(200, answer_to(body))

    def _refuse(self, status: int, kind: str, words: str) -> None:
        self._answer(status, {"type": "error", "error": {"type": kind, "message": words}})

    def _answer(self, status: int, answer: Json) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, answer: Json) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for each in (*map(as_stream, events_of(answer)), b""):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(each), each))

    def log_message(self, *_: Any) -> None:
        """Nothing: a log of requests is the service's."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.standins.messages_provider")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    server = ThreadingHTTPServer(("127.0.0.1", options.port), _Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
