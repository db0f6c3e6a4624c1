"""The stand-in model provider as a process of its own, for any test that needs a provider."""

import http.client
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Short names that calls use in place of long directives (`tests/standins/provider/behaviour.py`).
KEPT = tempfile.TemporaryDirectory(prefix="kept-")
DEADLINE = 60.0  # seconds; a machine with much else to do is slow, a broken one is for ever


class Provider:
    """A running stand-in. `base_url` ends in `/v1`, as an OpenAI client takes it."""

    def __init__(self, process: subprocess.Popen[str], base_url: str) -> None:
        self.process = process
        self.base_url = base_url
        address = urlsplit(base_url)
        assert address.hostname is not None
        assert address.port is not None
        self.host = address.hostname
        self.port = address.port

    def stats(self) -> dict[str, Any]:
        """Requests so far, requests and streams that are open, and streams that ended before their time."""
        report: dict[str, Any] = self._call("GET", "/__stats")
        return report

    def last(self) -> dict[str, Any]:
        """The body, the header names and the ``traceparent`` of the last authorised model call."""
        last: dict[str, Any] = self._call("GET", "/__last")
        return last

    def work(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the work of each marked call that has ended, by attempt: ``input``, ``output``, ``reported``."""
        work: dict[str, list[dict[str, Any]]] = self._call("GET", "/__work")
        return work

    def go(self) -> None:
        """Calls that are held are answered, until the next reset."""
        self._call("POST", "/__go")

    def reset(self) -> None:
        """Set the counters to zero and forget the last body."""
        self._call("POST", "/__reset")

    def wait_for(
        self, reached: Callable[[dict[str, Any]], bool], *, seconds: float = DEADLINE
    ) -> dict[str, Any]:
        """The first stats for which `reached` is true; fails with the last ones at the deadline."""
        end = time.monotonic() + seconds
        while not reached(stats := self.stats()):
            assert time.monotonic() < end, f"not reached in {seconds} s: {stats}"
            time.sleep(0.01)
        return stats

    def stop(self) -> int:
        """End it as an operator would (SIGTERM); its exit status."""
        self.process.terminate()
        return self.process.wait(DEADLINE)

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        self.process.kill()
        self.process.wait(DEADLINE)

    def _call(self, method: str, path: str) -> Any:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=DEADLINE)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            assert response.status == http.HTTPStatus.OK
            return json.loads(response.read())
        finally:
            connection.close()


@contextmanager
def running_provider(*, api_key: str | None = None) -> Iterator[Provider]:
    """Starts a stand-in, waits until it listens, and ends it on the way out.

    It also ends when this process does, however that dies: its standard input is a pipe from here.
    """
    command = [sys.executable, "-m", "tests.standins.provider", "--until-eof"]
    command += [f"--api-key={api_key}"] if api_key is not None else []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "STAND_IN_KEPT": KEPT.name},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Provider(process, _announced_address(process))
        finally:
            if process.poll() is None:
                process.kill()


def _announced_address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], DEADLINE)
    line = process.stdout.readline() if ready else ""
    prefix = "listening on "
    assert line.startswith(prefix), f"the stand-in provider did not start: {line!r}"
    return line.removeprefix(prefix).strip()


@pytest.fixture(scope="session")
def provider_process() -> Iterator[Provider]:
    """One stand-in for all tests."""
    with running_provider() as provider:
        yield provider


@pytest.fixture
def provider(provider_process: Provider) -> Provider:
    """The stand-in of this session, with its counters at zero."""
    provider_process.reset()
    return provider_process
