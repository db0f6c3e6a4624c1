"""Browsers of the two engines that webviews have, opened at a page that calls the service from another origin.

WebKit is what Tauri has on macOS and Linux; Chromium is what WebView2 is, on Windows.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import requests

from tests.browsers import chromium
from tests.served.shell import HOST, PATIENCE
from tests.tools.folders import ROOT
from tests.tools.ports import free

NODE = ROOT / "tests" / "wire"
PAGE = '<!doctype html><meta charset="utf-8"><script type="module" src="/webview.js"></script>'
# The calls of a page, one after the other.
SECONDS = 120
WAIT = "const done = arguments[0]; setInterval(() => window.results && done(window.results), 50);"


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Says nothing of requests."""


@contextmanager
def page_of_a_shell(folder: Path) -> Iterator[str]:
    """The address of a page with `tests/wire/webview.mjs` and the SDKs that it imports."""
    (folder / "index.html").write_text(PAGE)
    bundle = [NODE / "node_modules/.bin/esbuild", "webview.mjs", "--bundle", "--format=esm"]
    options = [f"--outfile={folder / 'webview.js'}", "--log-level=error"]
    subprocess.run([*bundle, *options], cwd=NODE, check=True, timeout=2 * PATIENCE)
    server = ThreadingHTTPServer((HOST, 0), partial(_Silent, directory=folder))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def in_chromium(url: str) -> dict[str, Any]:
    """Returns the results of a page's calls."""
    with chromium() as browser:
        page = browser.new_page()
        page.set_default_timeout(SECONDS * 1000)
        page.goto(url)
        page.wait_for_function("window.results")
        results: dict[str, Any] = page.evaluate("window.results")
    return results


def in_webkit(url: str) -> dict[str, Any]:
    """The same in WebKitGTK's own browser, by the standard protocol of its driver."""
    port = free(HOST, 0)
    driver = ["WebKitWebDriver", f"--port={port}", f"--host={HOST}"]
    with _display() as display, _running(driver, DISPLAY=display):
        sessions = f"http://{HOST}:{port}/session"
        session = f"{sessions}/{_ask(sessions, capabilities={})['sessionId']}"
        _ask(f"{session}/timeouts", script=SECONDS * 1000)
        _ask(f"{session}/url", url=url)
        results: dict[str, Any] = _ask(f"{session}/execute/async", script=WAIT, args=[])
        requests.delete(session, timeout=PATIENCE)
    return results


def _ask(command: str, **members: Any) -> Any:
    """A command of WebDriver, tried until the driver listens."""
    with requests.Session() as patient:
        retries = requests.adapters.Retry(connect=9, backoff_factor=0.1)
        patient.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
        patient.trust_env = False
        answer = patient.post(command, json=members, timeout=SECONDS + PATIENCE)
    assert answer.status_code == 200, answer.text
    return answer.json()["value"]


@contextmanager
def _display() -> Iterator[str]:
    """A screen that nobody sees."""
    number, says = os.pipe()
    screen = ["Xvfb", "-displayfd", str(says), "-screen", "0", "800x600x24", "-nolisten", "tcp"]
    with os.fdopen(number) as told, _running(screen, pass_fds=[says]):
        os.close(says)
        yield f":{told.readline().strip()}"


@contextmanager
def _running(
    command: list[str], *, pass_fds: list[int] | None = None, **environ: str
) -> Iterator[None]:
    with subprocess.Popen(
        command,
        env={**os.environ, **environ},
        pass_fds=pass_fds or (),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        yield
        process.terminate()
