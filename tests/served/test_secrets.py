"""People's words and secrets reach no log and no row, whatever becomes of the request."""

import json
from datetime import UTC, datetime

import pytest
from django.apps import apps

from accounts.sessions.revocation import revoke_all
from tests.served.database import Database
from tests.served.people import BY, Person
from tests.served.service import Service, is_worked_off, working_off
from tests.served.shell import Shell, asked, stand_in
from tests.waiting import eventually

# Written the same in JSON, in an address and in a header.
SAID = "canary-7kQz"


@pytest.fixture
def held(database: Database, person: Person, shell: Shell) -> set[str]:
    """Every secret of a person who has done everything that can be done, well and badly."""
    key = shell.post("/v1/keys", {"name": "Editor"}).json()["key"]
    held = {shell.access, shell.refresh_token, person.password, key}
    _show_key(shell, key)
    _call_models(shell)
    shell.post("/v1/auth/logout", data=f'{{"refresh": "{SAID}'.encode())
    shell.get(f"/v1/nowhere/{SAID}?{SAID}={SAID}", headers={"X-Request-ID": f"{SAID} {SAID}"})
    shell.get("/v1/auth/me", headers={"Authorization": f"Bearer {SAID}".encode()})
    shell.login(f"{SAID}@example.test", SAID)
    used = shell.refresh_token
    shell.refresh()
    held |= {shell.access, shell.refresh_token}
    # Told to operators by mail, which goes through the queue.
    shell.refresh(used)
    with database.rows():
        revoke_all(user_id=person.id, by=BY, reason="The test says so.", now=datetime.now(UTC))
    shell.complete(SAID)
    return held


def _show_key(shell: Shell, key: str) -> None:
    """A personal key as it is meant, where it is not, and in places that are written down."""
    for headers in ({"x-api-key": key, "Authorization": ""}, {"Authorization": f"Bearer {key}"}):
        assert shell.get("/v1/llm/models", headers=headers).status_code == 200
        assert shell.get("/v1/auth/me", headers=headers).status_code == 401
    shell.get(f"/v1/nowhere/{key}?key={key}", headers={"X-Request-ID": key, "User-Agent": key})
    shell.post("/v1/llm/complete", {"model": key, "messages": []}, headers={"x-api-key": key})


def _call_models(shell: Shell) -> None:
    telling = ("tokens=3", "tokens=9 fault=reset after=3", "fault=status:500", "fault=malformed")
    for directive in telling:
        text = f"{SAID} {stand_in(directive)}"
        shell.complete(text)
        with shell.stream(text) as stream:
            stream.rest()
    refusing = stand_in(f'fault=status:400 message="{SAID}"')
    assert SAID in shell.complete(refusing).json()["detail"]
    shell.post("/v1/llm/complete", {**asked(SAID), SAID: SAID, "tools": [{"function": SAID}]})
    shell.complete(SAID, model=SAID)


def test_nothing_that_was_said_or_is_held_reaches_a_log(
    service: Service, database: Database, held: set[str]
) -> None:
    with working_off(service) as worker:
        eventually(lambda: is_worked_off(database), seconds=120)
    for log in (service.child.program.log, worker.program.log):
        text = log.read_text()
        assert [json.loads(line) for line in text.splitlines()]
        for secret in (SAID, *held, service.environ["LLM_API_KEY"]):
            assert secret not in text


def test_nothing_that_was_said_or_is_held_reaches_a_row(database: Database, held: set[str]) -> None:
    with database.rows():
        rows = [str(row) for model in apps.get_models() for row in model._default_manager.values()]
    assert len(rows) > 100
    for secret in (SAID, *held):
        assert not [row for row in rows if secret in row]
