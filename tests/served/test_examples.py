"""The example shells of `docs/examples`, each through a session in which the answer of a refresh is lost."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from accounts.models import Session
from licensing.models import Licence
from telemetry.models import Event
from tests.served.database import Database
from tests.served.lossy import Door, lossy_door
from tests.served.people import PASSWORD, Person
from tests.served.service import Service
from tests.tools.folders import ROOT

EXAMPLES = ROOT / "docs" / "examples"
NODE = ROOT / "tests" / "wire" / "node_modules"


@pytest.fixture
def door(service: Service) -> Iterator[Door]:
    with lossy_door(service) as door:
        yield door


def ran(
    *command: str | Path,
    door: Door,
    person: Person,
    password: str = PASSWORD,
    is_refused: bool = False,
    **others: str,
) -> str:
    who = {"BASE_URL": door.url, "EMAIL": person.email, "PASSWORD": password, **others}
    done = subprocess.run(
        command,
        env={**os.environ, **who},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    fails = is_refused or password != PASSWORD
    assert done.returncode == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def assert_a_whole_session(told: str, door: Door, person: Person, database: Database) -> None:
    lines = dict(line.split(": ", 1) for line in told.lower().splitlines() if ": " in line)
    assert lines["licence"].startswith("active")
    assert lines["renewed"].startswith("true")
    assert lines["answer"].startswith("you wrote: “say hello.”. this is the local stand-in, so")
    assert int(lines["usage"].split(" in, ")[-1].split()[0]) > 0
    assert lines["telemetry"] == "1 accepted"
    assert lines["signed out"] == "true"
    # The answer that was lost was asked for again, with its key.
    assert len(door.keys) == 2
    assert len({*door.keys}) == 1
    # An unchanged licence costs its tag alone.
    assert [s for path, s in door.answers if path == "/v1/license/status"] == [200, 304]
    assert {status for _, status in door.answers} == {200, 202, 204, 304}
    with database.rows():
        (session,) = Session.objects.filter(user_id=person.id)
        assert session.ended_by == Session.Ended.LOGOUT
        assert Event.objects.filter(client_id=person.client_id).count() == 1


def assert_a_choice_of_devices(
    command: Sequence[str | Path], door: Door, person: Person, database: Database
) -> None:
    """Refused one more device, a shell lists those that are signed in; its person signs one of them out."""
    body = {"email": person.email, "password": PASSWORD, "device_fp": "desk-7"}
    requests.post(f"{door.url}/v1/auth/login", json=body, timeout=60).raise_for_status()
    with database.rows():
        Licence.objects.filter(client=person.client_id).update(devices=1)
    for wrong in ({}, {"SIGN_OUT": "another"}):
        told = ran(*command, door=door, person=person, is_refused=True, **wrong)
        assert "device: desk-7" in told
        assert "device_limit_reached" in told
        assert "Traceback" not in told
    told = ran(*command, door=door, person=person, SIGN_OUT="desk-7")
    assert "device: desk-7" in told
    assert "signed out: true" in told.lower()
    with database.rows():
        desk = Session.objects.get(user_id=person.id, device_fp="desk-7")
        assert desk.ended_by == Session.Ended.LOGOUT


def assert_an_update_screen(
    command: Sequence[str | Path], door: Door, person: Person, database: Database
) -> None:
    """A shell below the minimum shows that and the message alone; one that is not goes on."""
    told = {"minimum_version": "1.4.0", "message_id": uuid4(), "message_level": "warning"}
    with database.rows():
        licences = Licence.objects.filter(client=person.client_id)
        licences.update(**told, message_text="Maintenance on Sunday.")
    for version in ("1.3.9", "1.0.0", "1.4.0-rc.1"):
        shown = ran(*command, door=door, person=person, VERSION=version)
        assert "Maintenance on Sunday." in shown
        assert f"update: {version} must become 1.4.0 or newer" in shown
        assert "answer: " not in shown
    for version in ("1.4.0", "1.10.0"):
        shown = ran(*command, door=door, person=person, VERSION=version)
        assert "Maintenance on Sunday." in shown
        assert "signed out: true" in shown.lower()


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, EXAMPLES / "python" / "shell.py"],
        pytest.param(["bash", EXAMPLES / "curl" / "shell.sh"], marks=pytest.mark.wire),
    ],
    ids=["python", "curl"],
)
def test_an_example_survives_a_lost_answer(
    command: list[str | Path], door: Door, person: Person, database: Database
) -> None:
    told = ran(*command, door=door, person=person)
    assert_a_whole_session(told, door, person, database)
    refused = ran(*command, door=door, person=person, password="not this one")
    assert "invalid_credentials" in refused
    assert "Traceback" not in refused
    assert_a_choice_of_devices(command, door, person, database)
    assert_an_update_screen(command, door, person, database)


@pytest.mark.wire
@pytest.mark.timeout(200)
def test_the_typed_example_survives_a_lost_answer(
    door: Door, person: Person, database: Database, tmp_path: Path
) -> None:
    folder = shutil.copytree(EXAMPLES / "typescript", tmp_path / "shell")
    (folder / "node_modules").symlink_to(NODE)
    types = [
        NODE / ".bin" / "openapi-typescript",
        f"{door.url}/v1/schema",
        "-o",
        folder / "schema.d.ts",
    ]
    subprocess.run(types, check=True, capture_output=True)
    subprocess.run([NODE / ".bin" / "tsc"], check=True, cwd=folder)
    door.answers.clear()
    command = ("node", folder / "build" / "main.js")
    assert_a_whole_session(ran(*command, door=door, person=person), door, person, database)
    refused = ran(*command, door=door, person=person, password="not this one")
    assert refused.startswith("invalid_credentials: ")
    assert_a_choice_of_devices(command, door, person, database)
    assert_an_update_screen(command, door, person, database)
