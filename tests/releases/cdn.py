"""A CDN on loopback: files in memory, and the ways in which a server can fail to give one."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

IMMUTABLE = "public, max-age=31536000, immutable"
Answer = Callable[[BaseHTTPRequestHandler], None]


class Cdn:
    """Put files (or answers of your own) into `files` by path; `asked` lists the paths that were asked for.

    What is not there is read from the folder `origin` and kept until it is purged, as a CDN does; `purged` lists the
    paths. `deaf` purges answer well and forget nothing; `purge_status` is the answer to one, or `purge_answer`.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, bytes | Answer] = {}
        self.asked: list[str] = []
        self.origin: Path | None = None
        self.kept: dict[str, bytes] = {}
        self.purged: list[str] = []
        self.deaf = False
        self.purge_status = 200
        self.purge_answer: Answer | None = None

    def answer_of(self, path: str) -> Answer:
        """What is there, in one of three places."""
        known = self.files.get(path, self.kept.get(path))
        if known is None and self.origin is not None:
            file = self.origin / path.removeprefix("/")
            known = file.read_bytes() if file.is_file() else None
            if known is not None:
                self.kept[path] = known
        if known is None:
            return status(404)
        return whole(known) if isinstance(known, bytes) else known

    def purge(self, path: str) -> Answer:
        self.purged.append(path)
        if self.purge_status < 400 and not self.deaf:
            self.kept.pop(path, None)
        return self.purge_answer or status(self.purge_status)


@contextmanager
def running_cdn() -> Iterator[Cdn]:
    """Listens on a free port, until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            cdn.asked.append(self.path)
            with suppress(ConnectionError):
                cdn.answer_of(self.path)(self)

        def do_PURGE(self) -> None:
            with suppress(ConnectionError):
                cdn.purge(self.path)(self)

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cdn = Cdn(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield cdn
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def whole(content: bytes, **headers: str) -> Answer:
    """200 with a file."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.send_header("Cache-Control", IMMUTABLE)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(content)

    return answer


def status(code: int, **headers: str) -> Answer:
    """Another answer, without a body."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        request.send_header("Content-Length", "0")
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()

    return answer


def cut_off(content: bytes, *, promised: int) -> Answer:
    """200 that ends before the length it has promised."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(promised))
        request.end_headers()
        request.wfile.write(content)
        request.close_connection = True

    return answer


def in_chunks(*chunks: bytes, complete: bool = True) -> Answer:
    """200 without a length."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for chunk in chunks:
            request.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        if complete:
            request.wfile.write(b"0\r\n\r\n")
        request.close_connection = True

    return answer


def trickle(stop: threading.Event, *, head: bool = False) -> Answer:
    """A byte now and then until `stop`: of the body, or of a header that never ends."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        if head:
            request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        else:
            request.send_response(200)
            request.send_header("Content-Length", "1000000")
            request.end_headers()
        while not stop.wait(0.05):
            request.wfile.write(b"x")

    return answer
