"""The local stand-in of a CDN: `python -m tests.standins.cdn --port 0 FOLDER` serves what is published into a folder.

It keeps files in memory until they are purged, as a CDN does, with the cache headers that the service gives
objects. It is for one machine: plain http, without a limit to what it keeps.
"""

import argparse
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from tests.tools.stops import Stopped, listen_for_stops, pause

POINTER = "latest.json"
SIGNATURE = ".minisig"
POINTER_CACHE = "public, max-age=60, stale-while-revalidate=300"
IMMUTABLE_CACHE = "public, max-age=31536000, immutable"
KINDS: Mapping[str, str] = {".json": "application/json", SIGNATURE: "text/plain; charset=utf-8"}
CHUNK = 256 * 1024


class Edge(ThreadingHTTPServer):
    """A server of one folder and what it keeps of it."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], folder: Path) -> None:
        super().__init__(address, Handler)
        self.folder = folder.resolve()
        self.kept: dict[str, bytes] = {}

    def service_actions(self) -> None:
        """Between two looks for a request a wish to stop is heard."""
        pause(0)

    def content(self, path: str) -> bytes | None:
        """The bytes at a path; None where there is no file, which is not kept."""
        known = self.kept.get(path)
        if known is None and (file := self._file(path)) is not None:
            known = self.kept[path] = file.read_bytes()
        return known

    def _file(self, path: str) -> Path | None:
        """Plain names below the folder only: nothing hidden, nothing that climbs."""
        parts = path.removeprefix("/").split("/")
        if any(not each or each.startswith(".") or "\\" in each or "\0" in each for each in parts):
            return None
        file = self.folder.joinpath(*parts).resolve()
        return file if file.is_relative_to(self.folder) and file.is_file() else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "demo-cdn"
    sys_version = ""
    timeout: ClassVar[float] = 60.0
    server: Edge

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_PURGE(self) -> None:
        """Forgets one path."""
        self.server.kept.pop(self._path(), None)
        self.send_response(204)
        self.end_headers()

    def _answer(self, *, with_body: bool) -> None:
        path = self._path()
        content = self.server.content(path)
        self.send_response(200 if content is not None else 404)
        self.send_header("Content-Length", str(len(content or b"")))
        if content is not None:
            kind = KINDS.get(Path(path).suffix, "application/octet-stream")
            self.send_header("Content-Type", kind)
            is_pointer = path.removesuffix(SIGNATURE).endswith(f"/{POINTER}")
            self.send_header("Cache-Control", POINTER_CACHE if is_pointer else IMMUTABLE_CACHE)
        else:
            self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body and content:
            self.wfile.write(content)

    def _path(self) -> str:
        return self.path.partition("?")[0]

    def log_message(self, *args: Any) -> None:
        """Quiet: it would be a line for each read."""


def main(arguments: list[str]) -> int:
    """Serves until it is told to stop."""
    parser = argparse.ArgumentParser(prog="python -m tests.standins.cdn", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one, and says which")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    listen_for_stops()
    try:
        edge = Edge((options.host, options.port), options.folder)
    except OSError as error:
        print(f"cannot listen on {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"listening on http://{options.host}:{edge.server_port}", flush=True)
    try:
        edge.serve_forever(poll_interval=0.1)
    except Stopped:
        return 0
    finally:
        edge.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
