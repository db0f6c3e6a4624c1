"""Bodies that never end: answered and closed at their deadline, whatever drips in, and only those."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.config.test_gunicorn import SECONDS, Service, answer_on, serving

HEAD = "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nCookie: csrftoken={token}\r\n{length}\r\n"
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
LENGTH, CHUNKED = "Content-Length: 5000\r\n", "Transfer-Encoding: chunked\r\n"


@pytest.fixture(scope="module")
def hasty() -> Iterator[Service]:
    """A body has a second and what its size takes."""
    with serving("tests.platform.edge.hasty_gunicorn", BASE_URL="http://127.0.0.1:8000") as service:
        yield service


def drip(client: socket.socket, head: bytes, piece: bytes) -> float:
    """Sends a head, and a piece ten times a second until the service answers; returns how long that took."""
    began = time.monotonic()
    client.sendall(head)
    client.settimeout(0.1)
    while time.monotonic() - began < SECONDS:
        with suppress(OSError):
            client.sendall(piece)
        with suppress(TimeoutError):
            client.recv(1, socket.MSG_PEEK)
            break
    client.settimeout(SECONDS)
    return time.monotonic() - began


def head(path: str, length: str, kind: str = JSON) -> bytes:
    return HEAD.format(path=path, kind=kind, token="t" * 32, length=length).encode()


@pytest.mark.wall_time
@pytest.mark.parametrize(("path", "kind"), [("/v1/auth/login", JSON), ("/admin/login/", FORM)])
@pytest.mark.parametrize(
    ("length", "piece"), [(LENGTH, b" "), (CHUNKED, b"1\r\n \r\n")], ids=["length", "chunked"]
)
def test_a_body_that_drips_is_ended_at_its_deadline(
    hasty: Service, path: str, kind: str, length: str, piece: bytes
) -> None:
    with hasty.connect() as client:
        # The whole of it would take eight minutes.
        assert 1 < drip(client, head(path, length, kind), piece) < SECONDS
        status, headers, body = answer_on(client)
        assert (status, json.loads(body)["code"]) == (408, "request_timeout")
        assert headers["content-type"] == "application/problem+json"
        with suppress(ConnectionError):
            assert client.recv(1) == b""


def test_the_rest_of_an_ended_body_is_no_request(hasty: Service) -> None:
    """It comes as whole requests, many of them while the body is being given up."""
    hidden, length = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", 20_000
    with hasty.connect() as client:
        client.sendall(head("/v1/auth/login", CHUNKED) + b"%x\r\n" % length)
        time.sleep(0.95)
        for _ in range(length // len(hidden)):
            with suppress(OSError):
                client.sendall(hidden)
            time.sleep(0.0002)
        client.settimeout(SECONDS)
        received = b""
        with suppress(ConnectionError):
            while data := client.recv(65536):
                received += data
    assert received.startswith(b"HTTP/1.1 408")
    assert received.count(b"HTTP/1.1 ") == 1


@pytest.mark.wall_time
def test_a_stalled_body_is_ended_too(hasty: Service) -> None:
    with hasty.connect() as client:
        began = time.monotonic()
        client.sendall(head("/v1/auth/login", LENGTH) + b"{")
        status, _, body = answer_on(client)
        assert time.monotonic() - began > 1
        assert (status, json.loads(body)["code"]) == (408, "request_timeout")
        with suppress(ConnectionError):
            assert client.recv(1) == b""


def test_a_slow_body_in_time_is_answered_and_its_connection_kept() -> None:
    body = json.dumps({"email": "a@b.test", "password": "x" * 4_900}).encode()
    length = f"Content-Length: {len(body)}\r\n"
    # With half a minute, so that a machine that stands still for a while is in time too.
    with serving(BASE_URL="http://127.0.0.1:8000") as service, service.connect() as client:
        for _ in range(2):
            client.sendall(head("/v1/auth/login", length))
            for at in range(0, len(body), 1_000):
                time.sleep(0.15)
                client.sendall(body[at : at + 1_000])
            status, _, _ = answer_on(client)
            assert status not in {408, 500}


def test_the_service_answers_beside_a_hundred_dripping_bodies(hasty: Service) -> None:
    clients = [hasty.connect() for _ in range(100)]
    try:
        for client in clients:
            client.sendall(head("/v1/auth/login", LENGTH) + b"{")
        assert hasty.get("/livez").status == 204
        for client in clients:
            assert answer_on(client)[0] in {408, 429}
    finally:
        for client in clients:
            client.close()
