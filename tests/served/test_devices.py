"""A limit of devices from outside: twenty sign-ins at once over two processes, and one whose process is killed."""

import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import requests

from accounts.models import AuditEvent, Session
from licensing.models import DevicesFull, Licence
from tests.served.conftest import Ground
from tests.served.crowd import all_at_once
from tests.served.database import Database
from tests.served.people import PASSWORD, Person
from tests.served.service import WORKERS, Service, running_service
from tests.served.shell import Shell
from tests.waiting import eventually

RACERS = 20
LIMIT = 2
# Too many passwords are being checked.
BUSY = 503


def entered(service: Service, person: Person, **inputs: Any) -> requests.Response:
    body = {"email": person.email, "password": PASSWORD, **inputs}
    return Shell(service.url).post("/v1/auth/login", body)


def entered_at_last(service: Service, person: Person, **inputs: str) -> requests.Response:
    """A sign-in that comes again for as long as a busy machine refuses it."""
    while True:
        came = entered(service, person, **inputs)
        if came.status_code != BUSY:
            return came


def limited(database: Database, person: Person, full: DevicesFull = DevicesFull.REFUSE) -> None:
    with database.rows():
        licences = Licence.objects.filter(client=person.client_id)
        licences.update(devices=LIMIT, devices_full=full)


def signed_in(database: Database, person: Person) -> list[str]:
    with database.rows():
        live = Session.objects.filter(user=person.id, ended_at=None).order_by("started_at")
        return list(live.values_list("device_fp", flat=True))


@pytest.mark.parametrize(
    ("full", "known", "answers"),
    [
        ("refuse", 1, {200: 1, 403: RACERS - 1}),
        ("refuse", 2, {403: RACERS}),
        ("oldest", 1, {200: RACERS}),
        ("end_session", 2, {200: 1, 404: RACERS - 1}),
    ],
)
def test_twenty_sign_ins_at_once_never_pass_the_limit(
    service: Service,
    database: Database,
    person: Person,
    full: str,
    known: int,
    answers: dict[int, int],
) -> None:
    for number in range(known):
        assert entered(service, person, device_fp=f"known-{number}").status_code == 200
    given = {}
    if full == "end_session":
        with database.rows():
            ended = Session.objects.get(user=person.id, device_fp="known-0")
        given["end_session"] = str(ended.pk)
    oldest = full == "oldest"
    limited(database, person, DevicesFull.OLDEST if oldest else DevicesFull.REFUSE)
    came = all_at_once(
        RACERS, lambda number: entered_at_last(service, person, device_fp=f"new-{number}", **given)
    )
    assert Counter(each.status_code for each in came) == answers
    assert len(signed_in(database, person)) == LIMIT


def test_a_sign_in_whose_process_is_killed_ends_no_session_and_begins_none(
    ground: Ground, database: Database, person: Person
) -> None:
    with running_service(ground.folder, ground.environ) as service:
        for name in ("a", "b"):
            assert entered(service, person, device_fp=name).status_code == 200
        limited(database, person)
        refused = entered(service, person, device_fp="c").json()
        assert refused["code"] == "device_limit_reached"
        chosen = next(each["id"] for each in refused["devices"] if each["device"] == "a")
        before = service.workers()
        with ThreadPoolExecutor(1) as pool, psycopg.connect(database.url) as other:
            # The session has ended, and its event cannot be written yet.
            other.execute("LOCK TABLE accounts_auditevent IN EXCLUSIVE MODE")
            asked = pool.submit(entered, service, person, device_fp="c", end_session=chosen)
            eventually(lambda: waits_for_a_lock(database))
            for worker in before:
                os.kill(worker, signal.SIGKILL)
            with pytest.raises(requests.ConnectionError):
                asked.result(60)
            other.rollback()
        eventually(
            lambda: len(service.workers()) == WORKERS and not {*before} & {*service.workers()}
        )
        eventually(lambda: not waits_for_a_lock(database))
        assert signed_in(database, person) == ["a", "b"]
        with database.rows():
            assert not AuditEvent.objects.filter(action="session:ended", actor=person.email)
        again = entered(service, person, device_fp="c", end_session=chosen)
        assert again.status_code == 200
        assert signed_in(database, person) == ["b", "c"]


def waits_for_a_lock(database: Database) -> bool:
    with psycopg.connect(database.url) as looking:
        found = looking.execute(
            "SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
            " WHERE datname = current_database() AND NOT granted"
        )
        return found.fetchone() is not None
