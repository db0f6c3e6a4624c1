"""A database that is lost and restored to a moment before: rows are whole, and no token of the lost time lives.

The commands are those of docs/operating.md.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psycopg
import pytest
import requests
from pytest_django.plugin import DjangoDbBlocker

from accounts import audit
from accounts.forwarding import forward
from accounts.sessions.revocation import revoke_all
from config.platform.observability.syslog import Receiver
from tests.drills.recovery import Documented, archiving, restored, run
from tests.drills.rows import Digest, digest, is_counted, months_that_differ, numbers_behind
from tests.served.database import Database
from tests.served.ledger import (
    assert_nothing_is_reserved,
    records_of,
)
from tests.served.people import BY, Person, add_person, suspend
from tests.served.service import HOST, Service, is_worked_off, running_service, working_off
from tests.served.shell import Caller, Shell, stand_in
from tests.standins.provider_process import running_provider
from tests.standins.syslog_server import SyslogServer, listening
from tests.tools import kept
from tests.tools.postgres import SPLIT
from tests.waiting import eventually
from usage.models import UsageRecord

# A machine with much else to do takes minutes to lay it all out.
pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

BY_HAND = "UPDATE licensing_licence SET operator_status = 'grace', operator_reason = 'By hand.',"
BY_HAND += " operator_grace_until = now() + interval '9 days', changed_at = now() WHERE id = %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The observations around the moment, and the service on the restored database."""

    person: Person
    other: Person
    before: dict[str, Shell]
    lost: dict[str, Shell]
    keys: dict[str, str]
    rows: Digest
    found: Digest
    syslog: SyslogServer
    database: Database
    service: Service
    folder: Path

    def shell(self, person: Person) -> Shell:
        shell = Shell(_address(self.service))
        response = shell.login(person.email, person.password)
        assert response.status_code == 200, response.text
        return shell


@pytest.fixture(scope="module")
def loss(
    django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Loss]:
    folder, new = tmp_path_factory.mktemp("lost"), tmp_path_factory.mktemp("restored")
    unblock = django_db_blocker.unblock
    with ExitStack() as stack:
        provider = stack.enter_context(running_provider(api_key=os.environ["LLM_API_KEY"]))
        syslog = stack.enter_context(listening(Receiver("tcp", "127.0.0.1", 0)))
        running = stack.enter_context(
            archiving(folder, lambda server: kept.lay_out(server, os.environ))
        )
        database = Database(SPLIT, unblock, server=running.server.url)
        environ = {
            "DATABASE_URL": database.service_url,
            "DATABASE_OWNER_URL": database.url,
            "LLM_BASE_URL": provider.base_url,
            "EMAIL_URL": (folder / "mail").as_uri(),
            # A call is still open at the moment, however long it takes to come to it.
            "LLM_READ_TIMEOUT": "500",
        }
        with running_service(folder, environ) as service:
            service.manage("seed_demo", "--output", str(folder / "demo.json"))
            person, other = add_person(database), add_person(database)
            sign = partial(_signed_in, service)
            before = {"kept": sign(person), "rotated": sign(person), "other": sign(other)}
            _call(before["kept"])
            running.run(Documented.read().nightly)
            # The log alone has what follows.
            _call(before["other"])
            keys = {"before": _key(before["kept"])}
            with psycopg.connect(database.url, autocommit=True) as owner:
                owner.execute(BY_HAND, [other.licence_id])
            before["kept"].post("/v1/auth/password/reset", {"email": person.email})
            caller = Caller(
                before["kept"],
                service.port,
                "/v1/llm/stream",
                stand_in("tokens=20 fault=stall after=3"),
                max_tokens=100,
            )
            caller.read(events=3)
            with database.rows():
                forward(to=syslog.receiver, now=datetime.now(UTC))
            rows, moment = _at_rest(database.url)
            lost = {"rotated": sign(person), "other": sign(other)}
            assert before["rotated"].refresh().status_code == 200
            with database.rows():
                revoke_all(user_id=other.id, by=BY, reason="Stolen.", now=datetime.now(UTC))
            # Of the epoch that the restored one comes to.
            lost["again"] = sign(other)
            keys["lost"] = _key(lost["rotated"])
            suspend(database, person)
            for shell in (lost["rotated"], lost["again"]):
                for _ in range(20):
                    assert shell.get("/v1/auth/me").status_code == 200
            for _ in range(3):
                _call(lost["again"])
            with database.rows():
                # More than a sequence is ahead of its rows after a crash.
                for number in range(40):
                    audit.record("user:lost", str(number), by=BY, now=datetime.now(UTC))
                forward(to=syslog.receiver, now=datetime.now(UTC))
            running.die()
            caller.close()
        server = stack.enter_context(restored(new, running, moment))
        database = Database(SPLIT, unblock, server=server.server.url)
        environ |= {"DATABASE_URL": database.service_url, "DATABASE_OWNER_URL": database.url}
        # Tokens name their issuer.
        environ["BASE_URL"] = service.url
        found = digest(database.url)
        run(Documented.read().after, {**os.environ, **environ, "MOMENT": str(moment)})
        with running_service(new, environ) as service:
            yield Loss(
                person=person,
                other=other,
                before=_at(service, before),
                lost=_at(service, lost),
                keys=keys,
                rows=rows,
                found=found,
                syslog=syslog,
                database=database,
                service=service,
                folder=new,
            )


def test_every_row_is_as_it_was_at_the_moment(loss: Loss) -> None:
    assert loss.found == loss.rows
    assert sum(number for number, _ in loss.rows.values()) > 500


@pytest.mark.parametrize("name", ["kept", "rotated", "other"])
def test_tokens_of_before_are_refused_as_revoked_and_never_as_suspended(
    loss: Loss, name: str
) -> None:
    shell = loss.before[name]
    assert _refusal(shell.get("/v1/license/status")) == (401, "access_revoked")
    assert _refusal(shell.complete("hello")) == (401, "access_revoked")
    assert _refusal(shell.refresh()) == (401, "invalid_refresh_token")


@pytest.mark.parametrize("name", ["rotated", "other", "again"])
def test_tokens_of_the_lost_time_are_refused_too(loss: Loss, name: str) -> None:
    shell = loss.lost[name]
    assert _refusal(shell.get("/v1/license/status"))[0] == 401
    assert _refusal(shell.complete("hello"))[0] == 401
    assert _refusal(shell.refresh()) == (401, "invalid_refresh_token")


@pytest.mark.parametrize("name", ["before", "lost"])
def test_personal_keys_are_refused(loss: Loss, name: str) -> None:
    shell = Shell(_address(loss.service))
    shell.access = loss.keys[name]
    assert _refusal(shell.complete("hello"))[0] == 401


def test_people_sign_in_again_with_the_licence_of_the_moment(loss: Loss) -> None:
    for person, status in ((loss.person, "active"), (loss.other, "grace")):
        shell = loss.shell(person)
        assert shell.get("/v1/license/status").json()["status"] == status
        _call(shell)
        assert shell.refresh().status_code == 200


def test_no_number_is_given_out_twice(loss: Loss) -> None:
    assert numbers_behind(loss.database.url) == []


def test_an_id_of_an_audit_event_never_names_two(loss: Loss) -> None:
    with loss.database.rows():
        assert forward(to=loss.syslog.receiver, now=datetime.now(UTC)) > 0
    events: dict[int, set[str]] = {}
    for message in loss.syslog.messages:
        event = json.loads(message[message.index(b"{") :])
        events.setdefault(event["id"], set()).add(event["action"] + event["at"])
    assert any("user:lost" in said for one in events.values() for said in one)
    assert any("everybody:tokens_revoked" in said for one in events.values() for said in one)
    assert [each for each, said in events.items() if len(said) > 1] == []


@pytest.mark.parametrize("change", ["DELETE FROM", "UPDATE"])
def test_the_audit_log_is_append_only_still(loss: Loss, change: str) -> None:
    statement = f"{change} accounts_auditevent" + (" SET reason = ''" * (change == "UPDATE"))
    with psycopg.connect(loss.database.url) as owner, pytest.raises(psycopg.Error, match="append"):
        owner.execute(statement)
    with (
        psycopg.connect(loss.database.service_url) as service,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        service.execute(statement)


def test_the_worker_ends_what_was_open_at_the_moment(loss: Loss) -> None:
    [running] = [each for each in records_of(loss.database, loss.person) if not each.end]
    with loss.database.rows():
        # As if its minutes had gone by.
        UsageRecord.objects.filter(pk=running.pk).update(expires_at=datetime.now(UTC))
    with working_off(loss.service):
        eventually(
            lambda: all(each.end for each in records_of(loss.database, loss.person)), seconds=120
        )
        eventually(lambda: is_worked_off(loss.database), seconds=120)
        eventually(lambda: is_counted(loss.database.url), seconds=120)
    assert_nothing_is_reserved(loss.database, loss.person)
    assert months_that_differ(loss.database.url) == []
    # The mail that was queued at the moment has gone.
    assert any(
        loss.person.email in each.read_text() for each in (loss.folder.parent).rglob("mail/*")
    )


def _signed_in(service: Service, person: Person) -> Shell:
    shell = Shell(service.url)
    assert shell.login(person.email, person.password).status_code == 200
    return shell


def _call(shell: Shell) -> None:
    assert shell.complete(stand_in("tokens=9")).status_code == 200


def _key(shell: Shell) -> str:
    response = shell.post("/v1/keys", {"name": "Editor"})
    assert response.status_code == 201, response.text
    key: str = response.json()["key"]
    return key


def _at(service: Service, shells: dict[str, Shell]) -> dict[str, Shell]:
    """The same shells, who find the service at its address."""
    for shell in shells.values():
        shell.base_url = _address(service)
    return shells


def _address(service: Service) -> str:
    return f"http://{HOST}:{service.port}"


def _at_rest(url: str) -> tuple[Digest, datetime]:
    """All rows, and a moment at which they were like that."""
    for _ in range(60):
        before = digest(url)
        with psycopg.connect(url) as connection:
            [moment] = connection.execute("SELECT clock_timestamp()").fetchone() or ()
        time.sleep(0.5)
        if digest(url) == before:
            return before, moment
    raise AssertionError("it does not come to rest")


def _refusal(response: requests.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]
