"""The bench's own provider: answers as a provider does, at the pace it was asked for."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import requests

from tests.served.shell import DONE, Stream, text_of
from tests.tools.folders import ROOT
from tests.tools.ports import free

HOST = "127.0.0.1"
CHUNKS, SECONDS = 5, 0.02


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The address of one with short streams."""
    port = free(HOST, 0)
    command = [sys.executable, "-m", "tests.bench.provider", str(port), str(CHUNKS), str(SECONDS)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            yield _ready(f"http://{HOST}:{port}")
        finally:
            process.kill()


def _ready(url: str) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            stats(url)
        except requests.ConnectionError:
            time.sleep(0.02)
        else:
            return url
    raise TimeoutError


def stats(url: str) -> dict[str, int]:
    counted: dict[str, int] = requests.get(f"{url}/__stats", timeout=30).json()
    return counted


def ask(url: str, **members: bool) -> requests.Response:
    body = {"model": "any", "messages": [], **members}
    return requests.post(
        f"{url}/v1/chat/completions", json=body, stream="stream" in members, timeout=30
    )


def test_a_one_shot_answer_has_text_and_usage(provider: str) -> None:
    answer = ask(provider).json()
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["total_tokens"] > 0


def test_a_stream_has_so_many_chunks_that_say_when_they_were_sent(provider: str) -> None:
    began = time.monotonic()
    with ask(provider, stream=True) as response:
        *chunks, finish, usage, done = list(Stream(response))
    sent = [float(text_of([each])) for each in chunks]
    assert len(sent) == CHUNKS
    assert sent == sorted(sent)
    assert began <= sent[0]
    assert sent[-1] <= time.monotonic()
    # None is sent before its time, however busy the machine is.
    assert sent[-1] - sent[0] >= (CHUNKS - 1) * SECONDS * 0.9
    assert json.loads(finish)["choices"][0]["finish_reason"] == "stop"
    assert json.loads(usage)["usage"]["completion_tokens"] > 0
    assert done == DONE


def test_requests_follow_each_other_on_one_connection(provider: str) -> None:
    with requests.Session() as session:
        for _ in range(3):
            answer = session.post(f"{provider}/v1/chat/completions", json={}, timeout=30)
            assert answer.json()["object"] == "chat.completion"


def test_a_caller_that_leaves_a_stream_is_counted_as_having_left(provider: str) -> None:
    before = stats(provider)["left"]
    with ask(provider, stream=True) as response:
        next(response.iter_content(1))
    deadline = time.monotonic() + 30
    while stats(provider)["left"] == before:
        assert time.monotonic() < deadline
