"""A front of an S3 server that treats conditional writes as other servers do."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests

PATIENCE = 60.0
ERROR = (
    "<Error><Code>{code}</Code><Message>A header you provided is not implemented</Message></Error>"
)
# The answers to a write with a condition, which is not done.
REFUSALS = {
    "501": (501, "NotImplemented"),
    "400": (400, "InvalidArgument"),
    "always 412": (412, "PreconditionFailed"),
}
MODES = (*REFUSALS, "ignores", "304", "keeps")


class Front(ThreadingHTTPServer):
    """``mode``: one of ``MODES``. ``asked``: method, path and condition of each request."""

    daemon_threads = True

    def __init__(self, behind: str, mode: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind, self.mode = behind, mode
        self.asked: list[tuple[str, str, bool]] = []
        # Paths for which a write has to wait, or is lost in silence.
        self.before_write: dict[str, Any] = {}
        self.lost: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def writes(self, ending: str) -> list[bool]:
        """For each write of such a path, whether it had a condition."""
        return [
            has for method, path, has in self.asked if method == "PUT" and path.endswith(ending)
        ]


class Handler(BaseHTTPRequestHandler):
    server: Front
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        head = {name.lower(): value for name, value in self.headers.items()}
        has = self.command == "PUT" and "if-none-match" in head
        self.server.asked.append((self.command, self.path, has))
        if self.command == "PUT" and (wait := self.server.before_write.get(self.path)):
            wait()
        if has and self.server.mode in REFUSALS:
            status, code = REFUSALS[self.server.mode]
            self.answer(
                status, {"Content-Type": "application/xml"}, ERROR.format(code=code).encode()
            )
            return
        if self.server.mode == "ignores":
            head.pop("if-none-match", None)
        if self.command == "PUT" and self.path in self.server.lost:
            self.answer(200, {"ETag": '"lost"'}, b"")
            return
        answer = requests.request(
            self.command,
            f"{self.server.behind}{self.path}",
            headers={**head, "accept-encoding": "identity"},
            data=body,
            timeout=PATIENCE,
        )
        is_late = answer.status_code == 412 and self.server.mode == "304"
        self.answer(304 if is_late else answer.status_code, answer.headers, answer.content)

    def do_GET(self) -> None:
        self.do_PUT()

    def do_HEAD(self) -> None:
        self.do_PUT()

    def do_DELETE(self) -> None:
        self.do_PUT()

    def answer(self, status: int, headers: Any, body: bytes) -> None:
        left_out = {"content-length", "transfer-encoding", "connection", "date", "server"}
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in left_out:
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        length = headers.get("Content-Length", "0") if is_head else str(len(body))
        if status != 304:
            self.send_header("Content-Length", length)
        self.end_headers()
        if not is_head and status != 304:
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def running_front(behind: str, mode: str) -> Iterator[Front]:
    """Listens on loopback until the block ends."""
    front = Front(behind, mode)
    thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield front
    finally:
        front.shutdown()
        front.server_close()
        thread.join()
