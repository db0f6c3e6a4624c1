"""nginx in front, by docs/examples/hosting/nginx.conf: nothing of a stream is kept, and nobody is mistaken."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from json import loads
from os import environ

import pytest

from tests.served.conftest import Ground
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, the_record
from tests.served.people import Person
from tests.served.service import HOST, Service, running_service
from tests.served.shell import DONE, PATIENCE, Shell, stand_in, text_of
from tests.served.test_leaving import Caller
from tests.standins.provider_process import Provider
from tests.tools.children import Program
from tests.tools.folders import ROOT
from tests.tools.ports import free
from tests.tools.run import healthy
from tests.tools.wire import MODULE, PATH
from tests.waiting import eventually

pytestmark = pytest.mark.wire

AROUND = """
load_module {module};
daemon off;
# One process, of whoever runs the tests.
master_process off;
pid nginx.pid;
error_log error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
{documented}
}}
"""
TIMEOUTS = {"LLM_KEEPALIVE_SECONDS": "0.3", "TRUSTED_PROXIES": HOST}
MIB = 1024 * 1024
CONNECTIONS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The front for callers: an address of nginx's, and the service behind it."""

    service: Service
    port: int
    url: str


@pytest.fixture(scope="module")
def front(ground: Ground) -> Iterator[Front]:
    with running_service(ground.folder, {**ground.environ, **TIMEOUTS}) as service:
        folder = ground.folder / "nginx"
        folder.mkdir()
        port = free(HOST, 0)
        (folder / "nginx.conf").write_text(
            AROUND.format(module=MODULE, documented=_documented(service, port))
        )
        nginx = Program(
            name="nginx",
            command=[_nginx(), "-p", str(folder), "-c", "nginx.conf", "-e", "error.log"],
            log=folder / "output.log",
            environ=environ,
        ).start()
        try:
            nginx.wait_until(partial(healthy, HOST, port), seconds=60)
            yield Front(service=service, port=port, url=f"http://{HOST}:{port}")
        finally:
            nginx.stop()


@pytest.fixture
def shell(front: Front, person: Person) -> Shell:
    """The person, signed in by way of nginx."""
    shell = Shell(front.url)
    assert shell.login(person.email, person.password).status_code == 200
    return shell


def test_words_come_as_they_are_said(
    shell: Shell, database: Database, provider: Provider, person: Person
) -> None:
    with shell.stream(stand_in("tokens=10 fault=stall after=4")) as stream:
        assert stream.status == 200
        assert text_of([stream.next_event() for _ in range(4)])
        assert provider.stats()["streams_open"] == 1
    provider.wait_for(lambda stats: stats["streams_open"] == 0)
    record = the_record(database, person)
    assert record.end == "client_gone"


@pytest.mark.parametrize("telling", ["first=600", "tokens=9 fault=stall after=1"])
def test_silence_is_filled_also_before_the_first_byte(
    shell: Shell, provider: Provider, telling: str
) -> None:
    with shell.stream(stand_in(telling)) as stream:
        if "after" in telling:
            assert stream.next_event() != DONE
        assert [next(stream) for _ in range(2)] == [":", ":"]
    provider.wait_for(lambda stats: stats["requests_open"] == 0)


@pytest.mark.parametrize(
    ("path", "telling", "source"),
    [
        ("stream", "first=60", "estimated"),
        ("stream", "tokens=100000 delay=0.02", "counted"),
        ("stream", "fault=stall after=3", "counted"),
        # It is made and read to its end all the same.
        ("complete", "tokens=70 first=5", "provider"),
    ],
)
def test_a_client_that_leaves_is_noticed_through_it(
    front: Front,
    shell: Shell,
    database: Database,
    provider: Provider,
    person: Person,
    path: str,
    telling: str,
    source: str,
) -> None:
    caller = Caller(shell, front.port, f"/v1/llm/{path}", stand_in(telling))
    provider.wait_for(lambda stats: stats["requests_open"] == 1)
    caller.close()
    provider.wait_for(lambda stats: stats["requests_open"] == 0)
    record = the_record(database, person)
    assert (record.end, record.source) == ("client_gone", source)
    assert_nothing_is_reserved(database, person)


def test_a_failure_within_a_stream_is_passed_on(shell: Shell) -> None:
    with shell.stream(stand_in("tokens=20 fault=reset after=3")) as stream:
        *chunks, last = stream
    assert len(chunks) == 3
    assert loads(last)["error"]["code"] == "provider_error"


def test_eight_mebibytes_are_taken_and_more_is_refused_in_our_words(
    shell: Shell, provider: Provider
) -> None:
    room = 8 * MIB - len('{"messages": [{"role": "user", "content": ""}]}')
    whole = shell.complete("x" * room)
    # The stand-in's window is smaller than that, which is its own business: it was asked.
    assert whole.status_code in {200, 400}, whole.text
    assert provider.stats()["requests"] == 1
    refused = shell.complete("x" * (room + 1))
    assert (refused.status_code, refused.json()["code"]) == (413, "request_too_large")
    assert provider.stats()["requests"] == 1


def test_everyone_has_an_address_of_their_own_and_none_of_their_choice(
    front: Front, person: Person
) -> None:
    shell = Shell(front.url, address="127.0.0.7")
    claimed = {"X-Forwarded-For": "203.0.113.9", "X-Request-ID": "asked-through-nginx-0001"}
    response = shell.get("/v1/auth/me", headers=claimed)
    assert response.status_code == 401
    log = front.service.child.program.log

    def written() -> list[str]:
        lines = [loads(line) for line in log.read_text().splitlines(keepends=True) if "\n" in line]
        return [
            line["address"]
            for line in lines
            if line["event"] == "request" and line["request_id"] == claimed["X-Request-ID"]
        ]

    # The line is written once the answer has been sent.
    eventually(written)
    assert written() == ["127.0.0.7"]


def test_a_connection_to_the_service_is_used_again(shell: Shell, front: Front) -> None:
    for _ in range(20):
        assert shell.get("/v1/auth/me").status_code == 200
    # Nginx would answer with a page of its own for anything it could not pass on.
    assert front.service.errors() == []


def test_no_answer_names_the_servers(front: Front, shell: Shell) -> None:
    for path in ("/livez", "/v1/auth/me", "/v1/nothing", "/docs/"):
        assert "Server" not in shell.get(path).headers, path
    with socket.create_connection((HOST, front.port), timeout=PATIENCE) as client:
        client.sendall(b"NONSENSE\r\n\r\n")
        assert b"nginx/" not in client.recv(65536)


def test_an_address_has_two_hundred_connections_and_others_have_theirs(front: Front) -> None:
    head = b"POST /v1/auth/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{"
    crowded = Shell(front.url, address="127.0.0.9")
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            client = stack.enter_context(
                socket.create_connection(
                    (HOST, front.port), timeout=PATIENCE, source_address=("127.0.0.9", 0)
                )
            )
            client.sendall(head)
        eventually(lambda: crowded.get("/livez").status_code == 429)
        refused = crowded.get("/livez")
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert (refused.json()["code"], refused.headers["Retry-After"]) == ("rate_limited", "5")
        assert "Server" not in refused.headers
        assert Shell(front.url, address="127.0.0.10").get("/livez").status_code == 204
    eventually(lambda: crowded.get("/livez").status_code == 204)


def _documented(service: Service, port: int) -> str:
    """The configuration in the documentation, at this address and without TLS."""
    text = (ROOT / "docs" / "examples" / "hosting" / "nginx.conf").read_text()
    for theirs, ours in (
        ("server 127.0.0.1:8000;", f"server {HOST}:{service.port};"),
        ("listen 443 ssl;", f"listen {HOST}:{port};"),
    ):
        assert theirs in text
        text = text.replace(theirs, ours)
    return text


def _nginx() -> str:
    program = shutil.which("nginx", path=PATH)
    assert program is not None, "nginx is not installed; make test-wire installs it"
    assert MODULE.exists(), "nginx's module is not installed; make test-wire installs it"
    return program
