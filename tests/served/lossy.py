"""A door to a service that loses the first answer of every refresh, as a network does at the worst of moments."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.served.service import HOST, Service

REFRESH = "/v1/auth/refresh"
PATIENCE = 60.0
# Each connection carries one call, whose end is the end of the answer.
OF_A_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Door(ThreadingHTTPServer):
    """``answers`` are the path and status of each answer that was let through, ``keys`` those of refreshes."""

    daemon_threads = True

    def __init__(self, service: Service) -> None:
        super().__init__((HOST, 0), _Passage)
        self.service = service
        self.answers: list[tuple[str, int]] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}"


class _Passage(BaseHTTPRequestHandler):
    server: Door

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in OF_A_CONNECTION}
        port = self.server.service.port
        with closing(HTTPConnection(HOST, port, timeout=PATIENCE)) as far:
            far.request(self.command, self.path, body=body or None, headers=headers)
            answer = far.getresponse()
            if self.path == REFRESH and self._is_to_be_lost():
                # The service has answered, and nobody hears of it.
                answer.read()
            else:
                self._hand_on(answer)

    do_POST = do_DELETE = do_GET  # noqa: N815 - the library's names

    def _is_to_be_lost(self) -> bool:
        key = self.headers.get("Idempotency-Key")
        self.server.keys.append(key)
        return self.server.keys.count(key) == 1

    def _hand_on(self, answer: HTTPResponse) -> None:
        self.server.answers.append((self.path, answer.status))
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in OF_A_CONNECTION:
                self.send_header(name, value)
        self.end_headers()
        while piece := answer.read1():
            self.wfile.write(piece)

    def log_message(self, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def lossy_door(service: Service) -> Iterator[Door]:
    with Door(service) as door:
        threading.Thread(target=door.serve_forever, daemon=True).start()
        yield door
        door.shutdown()
