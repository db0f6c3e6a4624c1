"""The stand-in CDN: what it serves of a folder, what it keeps, and what nobody can read through it."""

import http.client
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from releases.delivery import storage
from tests.standins.cdn import IMMUTABLE_CACHE, POINTER_CACHE, Edge
from tests.tools.folders import ROOT

POINTER = "/shell/stable/latest.json"


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    folder = tmp_path / "storage"
    (folder / "shell" / "stable").mkdir(parents=True)
    (folder / "shell" / "stable" / "latest.json").write_bytes(b"old")
    (folder / "shell" / "stable" / "latest.json.minisig").write_bytes(b"signature")
    (folder / "shell" / ".hidden").write_bytes(b"half")
    (folder / "shell" / "a.tar.gz").write_bytes(b"artifact")
    (tmp_path / "env").write_text("SECRET_KEY=secret")
    (folder / "link").symlink_to(tmp_path / "env")
    edge = Edge(("127.0.0.1", 0), folder)
    thread = threading.Thread(target=edge.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield edge
    edge.shutdown()
    thread.join()
    edge.server_close()


def ask(edge: Edge, path: str, method: str = "GET") -> tuple[int, bytes, http.client.HTTPMessage]:
    with closing(http.client.HTTPConnection("127.0.0.1", edge.server_port, timeout=30)) as line:
        line.request(method, path)
        answer = line.getresponse()
        return answer.status, answer.read(), answer.headers


def test_what_is_published_is_served_with_the_cache_headers_of_storage(edge: Edge) -> None:
    for path, kind in (
        (POINTER, "application/json"),
        (f"{POINTER}.minisig", "text/plain; charset=utf-8"),
        ("/shell/a.tar.gz", "application/octet-stream"),
    ):
        status, _, headers = ask(edge, path)
        assert (status, headers["Content-Type"]) == (200, kind)
        assert headers["Cache-Control"] == storage.cache_control_of(path)
        assert ask(edge, path, "HEAD")[:2] == (200, b"")
    assert (POINTER_CACHE, IMMUTABLE_CACHE) == (storage.POINTER_CACHE, storage.IMMUTABLE_CACHE)


def test_it_keeps_a_file_until_it_is_purged(edge: Edge) -> None:
    file = edge.folder / "shell" / "stable" / "latest.json"
    assert ask(edge, POINTER)[1] == b"old"
    file.write_bytes(b"new")
    assert ask(edge, POINTER)[1] == b"old"
    assert ask(edge, POINTER, "PURGE")[0] == 204
    assert ask(edge, POINTER)[1] == b"new"


def test_what_is_not_there_is_not_kept(edge: Edge) -> None:
    status, _, headers = ask(edge, "/shell/beta/latest.json")
    assert (status, headers["Cache-Control"]) == (404, "no-store")
    (edge.folder / "shell" / "beta").mkdir()
    (edge.folder / "shell" / "beta" / "latest.json").write_bytes(b"first")
    assert ask(edge, "/shell/beta/latest.json")[1] == b"first"


@pytest.mark.parametrize(
    "path",
    ["/", "/../env", "/shell/../../env", "/%2e%2e/env", "//etc/passwd", "/shell/.hidden", "/link",
     "/shell", "/shell/stable/", "/..\\env"],
)  # fmt: skip
def test_nothing_else_can_be_read(edge: Edge, path: str) -> None:
    assert ask(edge, path)[:2] == (404, b"")


@pytest.mark.parametrize("wish", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_told_to(tmp_path: Path, wish: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.standins.cdn", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert "listening on" in process.stdout.readline()
        os.kill(process.pid, wish)
        try:
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()
