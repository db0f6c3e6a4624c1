"""The stand-in CDN: what it serves of a folder, what it keeps, and what nobody can read through it."""

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from releases.delivery import storage
from tests.standins.cdn import Cdn, running_cdn
from tests.tools.folders import ROOT

POINTER = "/shell/stable/latest.json"


@pytest.fixture
def cdn(tmp_path: Path) -> Iterator[Cdn]:
    folder = tmp_path / "storage"
    (folder / "shell" / "stable").mkdir(parents=True)
    (folder / "shell" / "stable" / "latest.json").write_bytes(b"old")
    (folder / "shell" / "stable" / "latest.json.minisig").write_bytes(b"signature")
    (folder / "shell" / ".hidden").write_bytes(b"half")
    (folder / "shell" / "a.tar.gz").write_bytes(b"artifact")
    (tmp_path / "env").write_text("SECRET_KEY=secret")
    (folder / "link").symlink_to(tmp_path / "env")
    with running_cdn(folder) as cdn:
        yield cdn


def ask(cdn: Cdn, path: str, method: str = "GET") -> tuple[int, bytes, http.client.HTTPMessage]:
    with closing(http.client.HTTPConnection(urlsplit(cdn.url).netloc, timeout=30)) as line:
        line.request(method, path)
        answer = line.getresponse()
        return answer.status, answer.read(), answer.headers


def test_a_published_file_is_served_with_the_cache_headers_of_storage(cdn: Cdn) -> None:
    for path, kind in (
        (POINTER, "application/json"),
        (f"{POINTER}.minisig", "text/plain; charset=utf-8"),
        ("/shell/a.tar.gz", "application/octet-stream"),
    ):
        status, _, headers = ask(cdn, path)
        assert (status, headers["Content-Type"]) == (200, kind)
        assert headers["Cache-Control"] == storage.cache_control_of(path)
        assert ask(cdn, path, "HEAD")[:2] == (200, b"")


def test_the_cdn_keeps_a_file_until_it_is_purged(cdn: Cdn) -> None:
    assert cdn.origin
    file = cdn.origin / "shell" / "stable" / "latest.json"
    assert ask(cdn, POINTER)[1] == b"old"
    file.write_bytes(b"new")
    assert ask(cdn, POINTER)[1] == b"old"
    assert ask(cdn, POINTER, "PURGE")[0] == 204
    assert ask(cdn, POINTER)[1] == b"new"


def test_a_missing_file_is_not_kept(cdn: Cdn) -> None:
    status, _, headers = ask(cdn, "/shell/beta/latest.json")
    assert (status, headers["Cache-Control"]) == (404, "no-store")
    assert cdn.origin
    (cdn.origin / "shell" / "beta").mkdir()
    (cdn.origin / "shell" / "beta" / "latest.json").write_bytes(b"first")
    assert ask(cdn, "/shell/beta/latest.json")[1] == b"first"


@pytest.mark.parametrize(
    "path",
    ["/", "/../env", "/shell/../../env", "/%2e%2e/env", "//etc/passwd", "/shell/.hidden", "/link",
     "/shell", "/shell/stable/", "/..\\env"],
)  # fmt: skip
def test_nothing_else_can_be_read(cdn: Cdn, path: str) -> None:
    assert ask(cdn, path)[:2] == (404, b"")


@pytest.mark.parametrize("wish", [signal.SIGTERM, signal.SIGINT])
def test_the_cdn_ends_by_its_signal(tmp_path: Path, wish: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.standins.cdn", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert "listening on" in process.stdout.readline()
        os.kill(process.pid, wish)
        try:
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
