"""A PostgreSQL that is frozen: nobody waits for long, and all is well once it goes on."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import requests

from tests.platform.db.own_postgres import OwnPostgres, own_postgres
from tests.served.conftest import Ground
from tests.served.crowd import all_at_once
from tests.served.service import Service, manage, running_service, working_off
from tests.served.shell import PATIENCE, Shell, stand_in
from tests.waiting import eventually

# Long, for what it needs.
pytestmark = pytest.mark.wire

# Two seconds more than this is what a connection waits for its server, and five what a request waits for a connection.
STATEMENT_SECONDS = 1
# These come to 15 s at most; for ever would be wrong, and a machine may stand still for a while.
LONGEST = 45.0
# The limit that a service sets by itself, and the moment longer after which a connection is given up.
USUAL_SECONDS = 9.0
# A machine may stand still in one of them.
TRIES = 3
# A worker that lost its database counts as dead after 45 s, and each minute what the dead were doing is queued again.
TAKEN_UP = 120.0
# More than both processes together have connections.
CROWD = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Frosty:
    """A service on a database that can be frozen, somebody who is signed in, and where its mails go."""

    server: OwnPostgres
    service: Service
    environ: dict[str, str]
    folder: Path
    shell: Shell
    email: str
    password: str
    mails: Path


def in_flight_and_used(shell: Shell) -> tuple[int, int] | None:
    """Tokens of output, once somebody answers."""
    answer = shell.get("/v1/usage/me")
    if answer.status_code != 200:
        return None
    output = answer.json()["output"]
    return output["in_flight"], output["used"]


@pytest.fixture(scope="module")
def frosty(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frosty]:
    folder = tmp_path_factory.mktemp("frosty")
    with own_postgres() as server:
        environ = {
            **ground.environ,
            "DATABASE_URL": server.url,
            "DATABASE_OWNER_URL": server.url,
            "EMAIL_URL": (folder / "mail").as_uri(),
        }
        hurried = {"PGOPTIONS": f"-c statement_timeout={STATEMENT_SECONDS}s"}
        with running_service(folder, environ | hurried) as service:
            patient = {
                name: value for name, value in service.environ.items() if name != "PGOPTIONS"
            }
            manage(patient, "migrate", "--no-input")
            manage(patient, "seed_demo", "--output", str(folder / "demo.json"))
            demo = json.loads((folder / "demo.json").read_text())
            shell = Shell(service.url)
            assert shell.login(demo["email"], demo["password"]).status_code == 200
            yield Frosty(
                server=server,
                service=service,
                environ=environ,
                folder=folder,
                shell=shell,
                email=demo["email"],
                password=demo["password"],
                mails=folder / "mail",
            )
            assert service.errors() == []


@pytest.mark.wall_time
def test_a_frozen_database_is_answered_for_in_time_and_everything_goes_on_after_it(
    frosty: Frosty,
) -> None:
    shell, server = frosty.shell, frosty.server

    def status(number: int = 0) -> tuple[requests.Response, float]:
        began = time.monotonic()
        return shell.get("/v1/license/status"), time.monotonic() - began

    # Every process has connections, some of which are idle when the server freezes.
    assert {answer.status_code for answer, _ in all_at_once(CROWD, status)} == {200}
    with server.frozen():
        answers = all_at_once(CROWD, status)
        for answer, seconds in answers:
            assert answer.status_code == 503, answer.text
            assert answer.json()["code"] == "service_unavailable"
            assert int(answer.headers["Retry-After"]) > 0
            assert seconds < LONGEST
        assert requests.get(f"{frosty.service.url}/livez", timeout=PATIENCE).status_code == 204
        assert requests.get(f"{frosty.service.url}/healthz", timeout=PATIENCE).status_code == 503
        login = Shell(frosty.service.url).login(frosty.email, "a password")
        assert login.json()["code"] == "service_unavailable"
        reset = shell.post("/v1/auth/password/reset", {"email": frosty.email})
        assert (reset.status_code, reset.json()["code"]) == (503, "service_unavailable")
        assert int(reset.headers["Retry-After"]) > 0
    eventually(lambda: status()[0].status_code == 200)
    # Not one lucky connection: all that are needed at once.
    eventually(lambda: {answer.status_code for answer, _ in all_at_once(CROWD, status)} == {200})


@pytest.mark.wall_time
def test_a_stream_whose_end_meets_a_frozen_database_goes_on_with_comments(frosty: Frosty) -> None:
    own = {**frosty.environ, "LLM_KEEPALIVE_SECONDS": "1"}
    with running_service(frosty.folder, own) as usual:
        shell = Shell(usual.url)
        assert shell.login(frosty.email, frosty.password).status_code == 200
        for number in range(1, TRIES + 1):
            longest = longest_silence(frosty, shell)
            # Told that it is not settled yet, it is soon after.
            eventually(lambda: in_flight_and_used(shell) == (0, 20 * number))  # noqa: B023
            if longest < USUAL_SECONDS - 2:
                break
        # Not one wait for the server, as long as it may be, is a wait of the caller.
        assert longest < USUAL_SECONDS - 2


def longest_silence(frosty: Frosty, shell: Shell) -> float:
    """In seconds, of a stream whose database freezes."""
    came, blocks = [], []
    with shell.stream(stand_in("tokens=20 delay=0.05")) as stream:
        blocks.append(stream.next_event())
        with frosty.server.frozen():
            came.append(time.monotonic())
            for block in stream:
                blocks.append(block)
                came.append(time.monotonic())
    *words, last = (block for block in blocks if block != ":")
    assert len(words) == 22
    assert json.loads(last)["error"]["code"] == "service_unavailable"
    assert blocks.count(":") >= 2
    return max(after - before for before, after in pairwise(came))


@pytest.mark.timeout(300)
def test_the_worker_of_queued_work_goes_on_after_it(frosty: Frosty) -> None:
    def mails() -> int:
        # Two that are sent by one process in the same second may share a file.
        return sum(each.read_text().count("Message-ID: ") for each in frosty.mails.glob("*"))

    def is_mailed() -> None:
        before = mails()
        response = frosty.shell.post("/v1/auth/password/reset", {"email": frosty.email})
        assert response.status_code == 204
        eventually(lambda: mails() > before, seconds=TAKEN_UP)

    with working_off(frosty.service):
        is_mailed()
        with frosty.server.frozen():
            # As long as others wait until they give it up.
            assert frosty.shell.get("/v1/license/status").status_code == 503
        eventually(lambda: frosty.shell.get("/v1/license/status").status_code == 200)
        is_mailed()
