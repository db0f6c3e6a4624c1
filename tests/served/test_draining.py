"""A process that is told to stop says so at its health check, while it still serves."""

import os
import signal

import requests

from tests.served.conftest import Ground, SignIn
from tests.served.ledger import eventually
from tests.served.people import Person
from tests.served.service import running_service
from tests.served.shell import DONE, PATIENCE, events, stand_in


def test_balancers_are_told_before_connections_are_refused(
    ground: Ground, person: Person, sign_in: SignIn
) -> None:
    with running_service(ground.folder, {**ground.environ, "DRAIN_SECONDS": "5"}) as service:

        def health() -> requests.Response:
            return requests.get(f"{service.url}/healthz", timeout=PATIENCE)

        shell = sign_in(service, person)
        assert (health().status_code, health().json()["status"]) == (200, "ok")
        with shell.stream(stand_in("tokens=20 delay=0.1")) as stream:
            stream.next_event()
            os.kill(service.child.pid, signal.SIGTERM)
            eventually(lambda: health().status_code == 503)
            report = health().json()
            assert report["status"] == "stopping"
            assert report["checks"] == {"database": "ok", "cache": "ok"}
            assert shell.get("/v1/usage/me").status_code == 200
            assert events(stream.rest())[-1] == DONE
        eventually(lambda: service.child.ended is not None)
        assert service.errors() == []
