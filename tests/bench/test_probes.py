"""Calls at fixed moments: one that is late makes those behind it late, and that is told."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread, Timer

import pytest

from tests.bench.probes import CONNECTIONS, HOST, Probe, probed

HELD_SECONDS = 0.3
EVERY = 0.001


@contextmanager
def answering(status: int) -> Iterator[int]:
    """The port of a server that holds its first request back."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.headers["Authorization"] == "Bearer held" and not asked:
                asked.append(self.path)
                Timer(HELD_SECONDS, self._answer).run()
            else:
                self._answer()

        def _answer(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    asked: list[str] = []
    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_every_call_is_measured() -> None:
    with answering(200) as port:
        took = probed(port, Probe(token="quick", every=EVERY, seconds=0.05))
    assert len(took) == 50


def test_a_call_behind_a_late_one_is_late_from_when_it_was_due() -> None:
    with answering(200) as port:
        took = probed(port, Probe(token="held", every=EVERY, seconds=EVERY * 2 * CONNECTIONS))
    # One that was held back, and the next that was due on its connection.
    assert len([each for each in took if each > HELD_SECONDS - 0.1]) >= 2


def test_a_call_that_is_refused_is_a_failure() -> None:
    with answering(429) as port, pytest.raises(AssertionError, match="429"):
        probed(port, Probe(token="refused", every=EVERY, seconds=EVERY))
