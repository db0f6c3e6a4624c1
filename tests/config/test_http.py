"""Connections that are over in time, from the first byte of a handshake on."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from socket import AF_INET, SOCK_STREAM
from typing import Any

import pytest

from config.http import one_answer
from config.http.one_answer import NoAnswer, exchange
from tests.standins.raw_server import Peer, playing
from tests.tools.folders import ROOT

HOST = "127.0.0.1"
WAYS = {"threads": [], "gevent": ["gevent.monkey", "--module"]}


@pytest.fixture(scope="module", params=WAYS)
def told(request: pytest.FixtureRequest) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", *WAYS[request.param], "tests.config.http_handshakes"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["gevent"] is (request.param == "gevent")
    return result


def test_a_trickling_handshake_ends_in_time(told: dict[str, Any]) -> None:
    assert told["trickles"] == {
        "_fetch": ["too_slow", True],
        "_post": ["too_slow, sent: False", True],
    }


def test_a_server_without_a_valid_certificate_gets_no_request(told: dict[str, Any]) -> None:
    refused = ["unreachable", "unreachable, sent: False"]
    assert told["its name"] == {"trusted": ["{}", "{}"], "not trusted": refused}
    assert told["another's"] == {"trusted": refused, "not trusted": refused}


def ask(url: str, **options: Any) -> bytes:
    settings = {"limit": 1000, "silence": 10.0, "deadline": time.monotonic() + 10.0} | options
    with exchange("GET", url, headers={}, **settings) as answer:
        return answer.read()


def test_nothing_is_sent_after_the_deadline() -> None:
    with playing(lambda peer: None) as provider:
        with pytest.raises(NoAnswer) as late:
            ask(provider.url, deadline=time.monotonic())
        assert (late.value.reason, late.value.sent) == ("too_slow", False)
    assert provider.connections == 0


def test_a_silent_address_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(peer: Peer) -> None:
        # From the connection on a silence may be longer.
        time.sleep(1.0)
        peer.answer(b"{}")

    with playing(late) as provider, deaf(provider.port) as hole:
        addresses = [(AF_INET, SOCK_STREAM, 0, "", (each, provider.port)) for each in (hole, HOST)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        monkeypatch.setattr(one_answer, "CONNECT_SECONDS", 0.5)
        assert ask(f"http://cdn.test:{provider.port}/") == b"{}"


def test_an_error_repeats_neither_the_address_nor_a_header() -> None:
    for url, value in (
        ("http://user:secret@[brackets/secret", ""),
        ("http://127.0.0.1:9/secret", "secret\n"),
    ):
        with (
            pytest.raises(NoAnswer) as raised,
            exchange(
                "GET",
                url,
                headers={"Authorization": value},
                limit=0,
                silence=1.0,
                deadline=time.monotonic() + 10.0,
            ),
        ):
            pass
        assert "secret" not in f"{raised.value!r} {raised.value.__cause__!r}"
        assert raised.value.__suppress_context__


def test_an_unread_body_keeps_no_task_waiting() -> None:
    def endless(peer: Peer) -> None:
        with suppress(OSError):
            peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                peer.send(b"x" * 65536)

    before = threading.active_count()
    with (
        playing(endless) as provider,
        exchange(
            "GET",
            provider.url,
            headers={},
            limit=0,
            silence=10.0,
            deadline=time.monotonic() + 10.0,
        ) as answer,
    ):
        assert answer.status == 200
    deadline = time.monotonic() + 10.0
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def deaf(port: int) -> Iterator[str]:
    """An address of this machine that takes no more connections at this port, and refuses none."""
    hole = "127.0.0.9"
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((hole, port))
        listener.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex((hole, port))
        yield hole
