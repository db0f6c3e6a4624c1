"""A CDN on loopback: files in memory or in a folder, kept until they are purged, and failures on demand.

`python -m tests.standins.cdn --port 0 FOLDER` serves a folder with the cache headers of published objects.
"""

import argparse
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

POINTER = "public, max-age=60, stale-while-revalidate=300"
IMMUTABLE = "public, max-age=31536000, immutable"
KINDS = {".json": "application/json", ".minisig": "text/plain; charset=utf-8"}
Answer = Callable[[BaseHTTPRequestHandler], None]


class Cdn:
    """Serves ``files`` (bytes, or answers of a test) by path; ``asked`` lists the requested paths.

    Other paths are read from the folder ``origin`` and kept until they are purged; ``purged`` lists those paths.
    ``deaf`` purges answer well and forget nothing; ``purge_status`` is the answer to one, or ``purge_answer``.
    """

    def __init__(self, url: str, origin: Path | None) -> None:
        self.url = url
        self.files: dict[str, bytes | Answer] = {}
        self.asked: list[str] = []
        self.origin = origin
        self.kept: dict[str, bytes] = {}
        self.purged: list[str] = []
        self.deaf = False
        self.purge_status = 204
        self.purge_answer: Answer | None = None

    def answer_of(self, path: str) -> Answer:
        """The answer from one of three places."""
        given = self.files.get(path)
        if given is not None:
            return whole(given) if isinstance(given, bytes) else given
        path = path.partition("?")[0]
        if path not in self.kept and (file := self._file(path)) is not None:
            self.kept[path] = file.read_bytes()
        if path not in self.kept:
            return status(404, Cache_Control="no-store")
        is_pointer = path.removesuffix(".minisig").endswith("/latest.json")
        kind = KINDS.get(Path(path).suffix, "application/octet-stream")
        cached = POINTER if is_pointer else IMMUTABLE
        return whole(self.kept[path], Cache_Control=cached, Content_Type=kind)

    def _file(self, path: str) -> Path | None:
        """A file below the folder by a plain name: not hidden, and nothing that climbs."""
        parts = path.removeprefix("/").split("/")
        bad = any(not each or each.startswith(".") or {"\\", "\0"} & set(each) for each in parts)
        if self.origin is None or bad:
            return None
        file = self.origin.joinpath(*parts).resolve()
        return file if file.is_relative_to(self.origin.resolve()) and file.is_file() else None

    def purge(self, path: str) -> Answer:
        self.purged.append(path)
        if self.purge_status < 400 and not self.deaf:
            self.kept.pop(path, None)
        return self.purge_answer or status(self.purge_status)


@contextmanager
def running_cdn(origin: Path | None = None, *, port: int = 0) -> Iterator[Cdn]:
    """Listens until the end of the block, on a free port unless one is named."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            cdn.asked.append(self.path)
            with suppress(ConnectionError):
                cdn.answer_of(self.path)(self)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_PURGE(self) -> None:
            with suppress(ConnectionError):
                cdn.purge(self.path)(self)

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    cdn = Cdn(f"http://127.0.0.1:{server.server_port}", origin)
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
        for name, value in {"Cache_Control": IMMUTABLE, **headers}.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        if request.command != "HEAD":
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


def main() -> None:
    """Serves a folder until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m tests.standins.cdn", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    # Waited for, because a handler may come just before a pause that it should end.
    signal.pthread_sigmask(signal.SIG_BLOCK, wishes := {signal.SIGTERM, signal.SIGINT})
    with running_cdn(options.folder, port=options.port) as cdn:
        print(f"listening on {cdn.url}", flush=True)
        signal.sigwait(wishes)


if __name__ == "__main__":
    main()
