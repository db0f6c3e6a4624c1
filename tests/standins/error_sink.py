"""A stand-in for Sentry on loopback, which keeps the envelopes of error reports."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue

SECONDS = 60


class Sink:
    """A listening server; ``dsn`` is the value for ``SENTRY_DSN``."""

    def __init__(self) -> None:
        self.envelopes: Queue[bytes] = Queue()
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                packed = self.headers.get("Content-Encoding") == "gzip"
                sink.envelopes.put(gzip.decompress(body) if packed else body)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                """Says nothing of requests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()
        self.dsn = f"http://public@127.0.0.1:{self._server.server_port}/1"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(SECONDS)
        self._server.server_close()
