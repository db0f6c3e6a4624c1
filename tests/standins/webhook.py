"""A stand-in for a chat's incoming webhook on loopback, which keeps what it is told and answers as it should."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECONDS = 10


class Webhook:
    """A listening server; ``status`` is its answer, and 0 closes the connection without one."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.status = 200
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert list(body) == ["text"]
                webhook.texts.append(body["text"])
                if not webhook.status:
                    return
                self.send_response(webhook.status)
                self.send_header("Content-Length", "2")
                self.send_header("Location", "http://127.0.0.1:9/")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: object) -> None:
                """Says nothing of requests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()
        self.secret = "T0-secret-of-the-webhook"
        self.url = f"http://127.0.0.1:{self._server.server_port}/services/{self.secret}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(SECONDS)
        self._server.server_close()
