"""A process that is stopping fails its health check, while it still serves."""

import os
import signal
import socket
import time
from contextlib import suppress

import pytest
import requests

from tests.served.conftest import Ground, SignIn
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of
from tests.served.people import Person
from tests.served.service import HOST, WORKERS, Service, running_service
from tests.served.shell import DONE, PATIENCE, events, stand_in
from tests.waiting import eventually


def health(service: Service) -> requests.Response:
    return requests.get(f"{service.url}/healthz", timeout=PATIENCE)


def test_balancers_are_told_before_connections_are_refused(
    ground: Ground, person: Person, sign_in: SignIn
) -> None:
    with running_service(ground.folder, {**ground.environ, "DRAIN_SECONDS": "20"}) as service:
        shell = sign_in(service, person)
        assert (health(service).status_code, health(service).json()["status"]) == (200, "ok")
        with shell.stream(stand_in("tokens=20 delay=0.1")) as stream:
            stream.next_event()
            os.kill(service.child.pid, signal.SIGTERM)
            eventually(lambda: health(service).status_code == 503)
            report = health(service).json()
            assert report["status"] == "stopping"
            assert report["checks"] == {"database": "ok", "cache": "ok"}
            assert shell.get("/v1/usage/me").status_code == 200
            assert events(stream.rest())[-1] == DONE
        eventually(lambda: service.child.ended is not None)
        assert service.errors() == []


@pytest.mark.full
def test_the_drain_ends_before_the_grace_so_that_calls_are_settled(
    ground: Ground, database: Database, person: Person, sign_in: SignIn
) -> None:
    short = {"DRAIN_SECONDS": "60", "GUNICORN_CMD_ARGS": "--graceful-timeout 12"}
    with running_service(ground.folder, {**ground.environ, **short}) as service:
        shell = sign_in(service, person)
        with shell.stream(stand_in("tokens=100000 delay=0.02"), max_tokens=4_000) as stream:
            stream.next_event()
            os.kill(service.child.pid, signal.SIGTERM)
            with suppress(requests.RequestException):
                assert DONE not in events(stream.rest())
        eventually(lambda: service.child.ended is not None)
        # Each by itself: a worker that the master kills says nothing and settles nothing more.
        assert service.child.program.log.read_text().count("Worker exiting") == WORKERS
    (record,) = records_of(database, person)
    assert record.end == "crashed"
    assert 0 < record.output_tokens < 4_000
    assert_nothing_is_reserved(database, person)


def test_an_idle_connection_is_closed_without_an_error(ground: Ground) -> None:
    with running_service(ground.folder, ground.environ) as service:
        with socket.create_connection((HOST, service.port), timeout=PATIENCE) as client:
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 204")
            os.kill(service.child.pid, signal.SIGTERM)
            assert client.recv(65536) == b""
        eventually(lambda: service.child.ended == 0)
        assert service.errors() == []


@pytest.mark.full
def test_workers_that_are_replaced_do_not_call_a_service_that_stays_away(ground: Ground) -> None:
    with running_service(ground.folder, {**ground.environ, "DRAIN_SECONDS": "60"}) as service:
        before = set(service.workers())
        os.kill(service.child.pid, signal.SIGHUP)
        statuses = set()
        while before & set(service.workers()):
            # A worker that ends may close a connection that was not accepted yet.
            with suppress(requests.ConnectionError):
                statuses.add(health(service).status_code)
            time.sleep(0.05)
        assert statuses == {200}
        eventually(service.listens)
        os.kill(service.child.pid, signal.SIGTERM)
        eventually(lambda: health(service).status_code == 503)
