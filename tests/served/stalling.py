"""Places at which a publish can be held up: at the CDN, before or after storage takes something, at a row."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from django.db import connection, transaction

from releases.models import ShellChannel
from tests.served.database import Database
from tests.standins.cdn import Answer, whole
from tests.waiting import eventually

PATIENCE = 60


class Gate:
    """Whoever comes to it waits until it is opened."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def wait_here(self) -> None:
        self._reached.set()
        self._opened.wait(PATIENCE)

    def wait_until_reached(self) -> None:
        assert self._reached.wait(PATIENCE), "nobody came"

    def open(self) -> None:
        self._opened.set()


def held_up(content: bytes, gate: Gate) -> Answer:
    """A CDN's answer that begins when the gate is opened."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        gate.wait_here()
        whole(content)(request)

    return answer


class Storage:
    """An S3 server behind a door: `before` and `after` hold gates by the end of a written object's path."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.before: dict[str, Gate] = {}
        self.after: dict[str, Gate] = {}

    def gate(self, gates: dict[str, Gate], path: str) -> None:
        for end, gate in list(gates.items()):
            if path.endswith(end):
                gate.wait_here()


@contextmanager
def before_storage(real: str) -> Iterator[Storage]:
    """Passes everything on to the server at `real`, as it is."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = urlsplit(self.path).path
            if self.command == "PUT":
                storage.gate(storage.before, path)
            with suppress(OSError):
                self._answer(*self._asked(body), path)

        def _asked(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
            asked = http.client.HTTPConnection(urlsplit(real).netloc, timeout=PATIENCE)
            left_out = {"expect", "connection"}
            headers = {n: v for n, v in self.headers.items() if n.lower() not in left_out}
            asked.request(self.command, self.path, body, headers)
            response = asked.getresponse()
            content = response.read()
            asked.close()
            return response, content

        def _answer(self, response: http.client.HTTPResponse, content: bytes, path: str) -> None:
            if self.command == "PUT":
                storage.gate(storage.after, path)
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in {"connection", "transfer-encoding", "content-length"}:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.pass_on)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    storage = Storage(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield storage
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def row_held(database: Database, channel: str) -> Iterator[None]:
    """Nobody else can write the channel's row, as long as the block lasts."""
    with database.rows(), transaction.atomic():
        assert ShellChannel.objects.select_for_update().filter(pk=channel).exists()
        yield


def somebody_waits_for_the_row() -> None:
    """Inside of `row_held`: returns once another process wants the row."""
    # Not from pg_stat_activity, which a transaction sees as it was when it first looked.
    waiting = """
        SELECT count(*) FROM pg_locks
        WHERE locktype = 'transactionid' AND NOT granted AND transactionid = pg_current_xact_id()::xid
    """

    def is_waited_for() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(waiting)
            return bool(cursor.fetchone()[0])

    eventually(is_waited_for)
