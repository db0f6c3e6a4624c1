"""A slow client holds no database connection while its body arrives."""

import socket
import time
from contextlib import ExitStack

from tests.served.conftest import Ground, SignIn
from tests.served.people import Person
from tests.served.service import running_service

# More than one process has connections to the database.
CLIENTS = 20


def test_a_body_that_stalls_holds_no_connection_of_the_database(
    ground: Ground, person: Person, sign_in: SignIn
) -> None:
    with running_service(ground.folder, {**ground.environ, "WEB_WORKERS": "1"}) as service:
        shell = sign_in(service, person)
        head = (
            f"POST /v1/llm/complete HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {shell.access}\r\n"
            "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        with ExitStack() as stack:
            for _ in range(CLIENTS):
                client = stack.enter_context(
                    socket.create_connection(("127.0.0.1", service.port), timeout=30)
                )
                client.sendall(head.encode())
                # One after the other, so that no two share a query.
                time.sleep(0.05)
            # Without a free connection it would be a 503, after a wait for one.
            assert shell.get("/v1/license/status").status_code == 200
