"""Connections that are over in time, from the first byte of a handshake on."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from socket import AF_INET, SOCK_STREAM
from typing import Any
from urllib.parse import urlsplit

import pytest

from config import deadlines
from config.deadlines import connected
from tests.standins.raw_server import playing
from tests.tools.folders import ROOT

HOST = "127.0.0.1"
WAYS = {"threads": [], "gevent": ["gevent.monkey", "--module"]}


@pytest.fixture(scope="module", params=WAYS)
def told(request: pytest.FixtureRequest) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", *WAYS[request.param], "tests.config.handshakes"],
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


def test_a_handshake_that_trickles_is_cut_off_in_time(told: dict[str, Any]) -> None:
    assert told["trickles"] == {
        "_fetch": ["too_slow", True],
        "_post": ["timed out: True, sent: False", True],
    }


def test_only_who_proves_the_name_is_asked(told: dict[str, Any]) -> None:
    refused = ["SSLCertVerificationError", "unreachable", "timed out: False, sent: False"]
    assert told["its name"] == {"trusted": ["{}", "{}", "{}"], "not trusted": refused}
    assert told["another's"] == {"trusted": refused, "not trusted": refused}


def test_nobody_is_asked_once_the_time_is_over() -> None:
    with playing(lambda peer: None) as provider:
        address = urlsplit(provider.url)
        with (
            pytest.raises(TimeoutError),
            connected(address, silence=1.0, deadline=time.monotonic()),
        ):
            pass
    assert provider.connections == 0


def test_an_address_that_answers_nothing_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with playing(lambda peer: None) as provider, deaf(provider.port) as hole:
        addresses = [(AF_INET, SOCK_STREAM, 0, "", (each, provider.port)) for each in (hole, HOST)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        monkeypatch.setattr(deadlines, "CONNECT_SECONDS", 0.5)
        address = urlsplit(f"http://cdn.test:{provider.port}/")
        with connected(address, silence=10.0, deadline=time.monotonic() + 10.0) as connection:
            assert connection.sock.getpeername() == (HOST, provider.port)
            # From then on a silence may be longer.
            assert connection.sock.gettimeout() > 5


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
