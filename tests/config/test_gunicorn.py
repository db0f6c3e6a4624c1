import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.tools.children import Child, Program
from tests.tools.folders import ROOT
from tests.waiting import eventually

SECRET = "s3cretMARKERneverlogged"
# The bound of a wait for a condition.
SECONDS = 60.0
FROM_PROXY = {"Host": "shell.test", "X-Forwarded-Proto": "https"}


class Service:
    """A real gunicorn with the real application, on a port of its own."""

    def __init__(self, child: Child) -> None:
        self.child = child
        child.wait_until(lambda: bool(self.said("serving")), seconds=SECONDS)
        self.port = int(self.said("serving")[0]["port"])

    def log(self) -> str:
        return self.child.program.log.read_text()

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [line for line in self.log().splitlines() if f'"event":"{event}"' in line]
        return [json.loads(line) for line in lines]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def get(self, path: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            response.read()
            return response
        finally:
            connection.close()


@contextmanager
def serving(config: str = "config.gunicorn", **environ: str) -> Iterator[Service]:
    with tempfile.TemporaryDirectory(prefix="serving-") as folder, ExitStack() as stack:
        program = Program(
            name="gunicorn",
            command=[
                sys.executable,
                "-m",
                "gunicorn",
                "-c",
                f"python:{config}",
                "config.wsgi:application",
            ],
            log=Path(folder) / "web.log",
            environ={**os.environ, "PORT": "0", "WEB_WORKERS": "1", "CACHE_URL": "", **environ},
            patience=SECONDS,
        )
        child = program.start()
        stack.callback(child.stop)
        yield Service(child)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """Under an https address, and with no proxy to believe."""
    with serving(BASE_URL="https://shell.test", TRUSTED_PROXIES="") as service:
        yield service


@pytest.fixture(scope="module")
def trusting() -> Iterator[Service]:
    """Behind a proxy on this machine."""
    with serving(BASE_URL="https://shell.test", TRUSTED_PROXIES="127.0.0.1") as service:
        yield service


def answer_on(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    with http.client.HTTPResponse(client) as response:
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, headers, response.read()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (f"{SECRET}\r\n\r\n", 400),
        (f"get /{SECRET} HTTP/1.1\r\n\r\n", 400),
        (f"GET / HTTP/1.1\r\n{SECRET}\r\n\r\n", 400),
        (f"GET / HTTP/1.1\r\nHost: {SECRET}\r\nHost: b\r\n\r\n", 400),
        (f"GET / HTTP/1.1\r\nContent-Length: {SECRET}\r\n\r\n", 400),
        (f"GET /{SECRET} HTTP/2.0\r\n\r\n", 400),
        (f"GET /livez HTTP/1.1\r\nX-Host: {SECRET}\r\n\r\n", 400),
        (f"GET / HTTP/1.1\r\nHost: a\r\nExpect: {SECRET}\r\n\r\n", 417),
        (f"GET / HTTP/1.1\r\nTransfer-Encoding: {SECRET}\r\n\r\n", 501),
        (f"GET /{SECRET * 1000} HTTP/1.1\r\n\r\n", 414),
        (f"GET / HTTP/1.1\r\nCookie: {SECRET * 1000}\r\n\r\n", 431),
        ("GET / HTTP/1.1\r\n" + f"A: {SECRET}\r\n" * 101 + "\r\n", 431),
    ],
)
def test_the_server_refuses_what_it_cannot_read_and_logs_none_of_it(
    service: Service, request_: str, status: int
) -> None:
    with service.connect() as client:
        client.sendall(request_.encode())
        got, headers, _ = answer_on(client)
        assert (got, headers["connection"]) == (status, "close")
        with suppress(ConnectionError):
            assert client.recv(1) == b""
    assert SECRET not in service.log()


LONG = "x" * 9000
REFUSED: list[tuple[str, int, str]] = [
    ("GET {} HTTP/1.1\r\nbad header\r\n\r\n", 400, "malformed_request"),
    ("GET {} HTTP/1.1\r\nHost: a\r\nA: b\r\n folded\r\n\r\n", 400, "malformed_request"),
    ("GET {} HTTP/9.9\r\nHost: a\r\n\r\n", 400, "malformed_request"),
    ("GET {} HTTP/1.1\r\nX: a\r\n\r\n", 400, "malformed_request"),
    ("GET {} HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400, "malformed_request"),
    ("GET {}" + LONG + " HTTP/1.1\r\nHost: a\r\n\r\n", 414, "address_too_long"),
    ("GET {} HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", 417, "expectation_failed"),
    ("GET {} HTTP/1.1\r\nHost: a\r\nCookie: " + LONG + "\r\n\r\n", 431, "headers_too_large"),
    ("GET {} HTTP/1.1\r\n" + "A: b\r\n" * 101 + "\r\n", 431, "headers_too_large"),
    ("GET {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: tea\r\n\r\n", 501, "not_implemented"),
]


@pytest.mark.parametrize(("request_", "status", "code"), REFUSED)
@pytest.mark.parametrize(
    "target", ["/v1/auth/login", "/v1/llm/chat/completions?a=", "http://shell.test/v1/x", "/livez"]
)
def test_refusals_of_the_server_are_problems(
    service: Service, target: str, request_: str, status: int, code: str
) -> None:
    """Never HTML (benoitc/gunicorn#2487, #2547 and #2878 are what clients make of other answers)."""
    with service.connect() as client:
        client.sendall(request_.format(target).encode())
        got, headers, content = answer_on(client)
        with suppress(ConnectionError):
            assert client.recv(1) == b""
    body = json.loads(content)
    assert (got, body["status"], body["code"]) == (status, status, code)
    assert (headers["content-type"], headers["connection"]) == ("application/problem+json", "close")
    assert headers["x-request-id"] == body["request_id"]
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert ("error" in body) is ("/llm/" in target)


@pytest.mark.parametrize("target", ["/admin/usage/usagerecord/?q=", "/account/password/"])
@pytest.mark.parametrize(("request_", "status", "code"), REFUSED[-5:])
def test_refusals_of_the_server_for_a_page_are_pages(
    service: Service, target: str, request_: str, status: int, code: str
) -> None:
    with service.connect() as client:
        client.sendall(request_.format(target).encode())
        got, headers, content = answer_on(client)
    assert (got, headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert "default-src 'none'" in headers["content-security-policy"]
    assert code in content.decode()


def test_the_second_request_of_a_connection_is_refused_for_itself(service: Service) -> None:
    with service.connect() as client:
        for path in ("/livez", "/admin/"):
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: shell.test\r\n\r\n".encode())
            answer_on(client)
        client.sendall(b"GET /v1/auth/me HTTP/1.1\r\nbad header\r\n\r\n")
        status, headers, _ = answer_on(client)
    assert (status, headers["content-type"]) == (400, "application/problem+json")


@pytest.mark.parametrize(
    ("path", "length"),
    [
        ("/v1/auth/login", 65_537),
        ("/v1/telemetry", 2**20 + 1),
        ("/v1/llm/complete", 8 * 2**20 + 1),
        ("/v1/auth/login", 10**30),
        ("/%76%31/auth/login", 65_537),
        ("/nowhere", 65_537),
    ],
)
def test_nobody_is_told_to_send_a_body_that_its_length_refuses(
    path: str, length: int, trusting: Service
) -> None:
    with trusting.connect() as client:
        client.sendall(_asking(path, length))
        status, headers, body = answer_on(client)
        assert (status, json.loads(body)["code"]) == (413, "request_too_large")
        assert headers["connection"] == "close"
        with suppress(ConnectionError):
            assert client.recv(1) == b""


def test_a_body_of_the_allowed_length_may_be_sent(trusting: Service) -> None:
    with trusting.connect() as client:
        for _ in range(2):
            client.sendall(_asking("/v1/auth/logout", 8))
            assert client.recv(100).startswith(b"HTTP/1.1 100")
            client.sendall(b"not json")
            assert answer_on(client)[0] == 400


def _asking(path: str, length: int) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        *(f"{name}: {value}" for name, value in FROM_PROXY.items()),
        "Content-Type: application/json",
        f"Content-Length: {length}",
        "Expect: 100-continue",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def test_slow_clients_do_not_delay_others(service: Service) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(service.connect()) for _ in range(60)]
        for number, client in enumerate(slow):
            # Some are slow with their headers, and some with their bodies.
            end = "\r\n\r\n{" if number % 2 else ""
            client.sendall(
                f"POST /v1/auth/logout HTTP/1.1\r\nHost: shell.test\r\nContent-Length: 20{end}".encode()
            )
        for _ in range(5):
            for client in slow:
                client.sendall(b" ")
            assert service.get("/livez").status == 204


def test_headers_change_neither_scheme_nor_client(service: Service) -> None:
    for headers in (
        {"X-Forwarded-Proto": "https"},
        {"X-Forwarded-Protocol": "ssl", "X-Forwarded-Ssl": "on"},
        {"Forwarded": "proto=https;for=198.51.100.1"},
    ):
        response = service.get("/v1/license/status", Host="shell.test", **headers)
        assert response.status == 403
        assert response.headers["Content-Type"] == "application/problem+json"
    response = service.get("/livez", SCRIPT_NAME="/v1", PATH_INFO="/healthz")
    assert response.status == 204


def test_an_answer_to_head_has_the_headers_of_get_and_no_body(service: Service) -> None:
    with service.connect() as client:
        client.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := client.recv(4096):
            answer += part
    head, end, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert (end, body) == (b"\r\n\r\n", b"")
    assert b"Content-Length:" in head
    assert not [line for line in service.log().splitlines() if "gunicorn.http" in line]


def test_logs_are_json_and_name_the_place(service: Service) -> None:
    lines = service.log().splitlines()
    assert lines
    assert all({"time", "level", "event"} <= json.loads(line).keys() for line in lines)
    assert (
        service.said("serving")[0] | {"address": "127.0.0.1", "count": 1}
        == service.said("serving")[0]
    )


def test_a_killed_worker_is_replaced(service: Service) -> None:
    eventually(lambda: len(_children(service.child.pid)) == 1)
    (before,) = _children(service.child.pid)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: _children(service.child.pid) not in ([], [before]))
    # On a busy machine it may not reach its database in time at first.
    eventually(lambda: service.get("/healthz").status == 200)


def test_a_stopping_service_finishes_running_requests_only() -> None:
    with (
        serving(BASE_URL="https://shell.test", TRUSTED_PROXIES="127.0.0.1") as service,
        service.connect() as idle,
        service.connect() as silent,
        service.connect() as running,
    ):
        idle.sendall(b"GET /livez HTTP/1.1\r\nHost: probe\r\n\r\n")
        assert answer_on(idle)[0] == 204
        head = (
            "POST /v1/auth/logout HTTP/1.1\r\nHost: shell.test\r\nX-Forwarded-Proto: https\r\n"
            "Content-Type: application/json\r\nContent-Length: 8\r\nExpect: 100-continue\r\n\r\n"
        )
        running.sendall(head.encode())
        # This comes when the application has been called.
        assert running.recv(100).startswith(b"HTTP/1.1 100")
        os.kill(service.child.pid, signal.SIGTERM)
        eventually(lambda: not _connects(service.port))
        assert service.child.ended is None
        running.sendall(b"not json")
        status, _, body = answer_on(running)
        assert (status, json.loads(body)["code"]) == (400, "malformed_request")
        assert running.recv(1) == b""
        assert silent.recv(1) == b""
        assert idle.recv(1) == b""
        eventually(lambda: service.child.ended == 0)


def test_a_client_that_stalls_in_mid_request_is_disconnected() -> None:
    with (
        serving("tests.config.impatient_gunicorn", TRUSTED_PROXIES="127.0.0.1") as service,
        service.connect() as client,
    ):
        lines = [
            "POST /v1/auth/logout HTTP/1.1",
            *(f"{name}: {value}" for name, value in FROM_PROXY.items()),
            "Content-Type: application/json",
            "Content-Length: 20",
        ]
        client.sendall("\r\n".join([*lines, "", "{"]).encode())
        while client.recv(4096):
            pass
        assert service.get("/livez").status == 204
        assert not [line for line in service.log().splitlines() if '"level":"error"' in line]


@pytest.mark.full
def test_a_frozen_database_does_not_stop_requests_without_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with serving(DATABASE_URL=f"postgresql://shell@127.0.0.1:{port}/shell") as service:
            with service.connect() as asking:
                asking.sendall(b"GET /healthz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n")
                silent.settimeout(SECONDS)
                asked, _ = silent.accept()
                assert service.get("/livez").status == 204
                status, _, body = answer_on(asking)
                assert status == 503
                assert json.loads(body)["checks"]["database"] == "unavailable"
            asked.close()


STATEMENTS = """
import config.gunicorn
import os, socket, threading
import django
from gevent import socket as cooperative
django.setup()
from django.db import connection
assert socket.socket is cooperative.socket
with connection.cursor() as cursor:
    for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        cursor.execute(f"SHOW {name}")
        print(cursor.fetchone()[0])
"""


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        (None, ["7s", "4s", "30s"]),
        ("-c statement_timeout=3s", ["3s", "4s", "30s"]),
    ],
)
def test_web_processes_limit_their_statements(given: str | None, limits: list[str]) -> None:
    environ = {**os.environ, **({"PGOPTIONS": given} if given else {})}
    done = _run([sys.executable, "-W", "error", "-c", STATEMENTS], environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == limits


# The connections that one round of the event loop accepts, among those that wait for a worker.
ACCEPTING = """
from config.gunicorn import MOST_ACCEPTED, Worker
import gevent, socket
listener = socket.create_server(("127.0.0.1", 0), backlog=64)
waiting = [socket.create_connection(listener.getsockname()) for _ in range(2 * MOST_ACCEPTED)]
class One:
    def handle(self, *args):
        pass
accepted = []
Worker.server_class(One(), listener, spawn=lambda handle, *args: accepted.append(args)).start()
while not accepted:
    gevent.sleep(0)
print(len(accepted) / MOST_ACCEPTED)
"""


def test_a_round_of_the_event_loop_accepts_several_connections() -> None:
    done = _run([sys.executable, "-c", ACCEPTING], dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1.0"]


def test_an_incomplete_environment_stops_the_start_with_a_report() -> None:
    environ = {**os.environ, "PORT": "http", "SECRET_KEY": ""}
    command = [sys.executable, "-m", "gunicorn", "-c", "python:config.gunicorn", "config.wsgi"]
    done = _run(command, environ)
    assert done.returncode != 0
    assert "PORT: Must be a whole number from 0 to 65535." in done.stderr
    assert "SECRET_KEY: Must not be empty." in done.stderr
    assert "Traceback" not in done.stderr


def _run(command: list[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_log_says_which_worker_died_of_what_and_which_one_follows() -> None:
    def begun() -> list[int]:
        return [int(pid) for pid in re.findall(r'"Booting worker with pid: (\d+)"', service.log())]

    with serving() as service:
        eventually(lambda: len(begun()) == 1)
        (worker,) = begun()
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: len(begun()) == 2)
        assert [
            (each["level"], each["pid"], each["signal"]) for each in service.said("worker_killed")
        ] == [("error", worker, "SIGKILL")]
        # Before it listens for signals, it is killed at the end instead of ended.
        assert service.get("/livez").status == 204
        service.child.stop()
        assert service.said("Handling signal: term")
        assert service.said(f"Worker exiting (pid: {begun()[1]})")
        assert "glogging.py" not in service.log()
        assert "pid: %s" not in service.log()
