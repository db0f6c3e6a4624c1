"""Answers reveal nothing about who has an account, by bytes or by time.

Samples of all cases are taken in turn, so that whatever else the machine does hits all alike, and their medians are
compared. How far the two halves of one case's own samples are apart is what the machine adds by itself: next to
nothing where it is quiet. One that is busy is given three chances besides.
"""

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection
from statistics import median

import pytest
from argon2 import PasswordHasher
from django.contrib.auth.hashers import make_password
from django.db import connection

from accounts.models import User
from licensing.models import Licence
from tests.served.database import Database
from tests.served.people import Person, add_person
from tests.served.service import HOST, Service
from tests.served.shell import PATIENCE

# Half a minute of measuring, or several on a slow machine.
pytestmark = [pytest.mark.wire, pytest.mark.wall_time, pytest.mark.timeout(600)]

SAMPLES = 100
# The larger of the two: a slow machine makes every difference larger, as it makes the answer slower. The tests of
# refusals count statements.
WITHIN_SECONDS = 0.005
WITHIN_SHARE = 0.1
TRIES = 3
# Differs from answer to answer, whoever asks.
NOT_COMPARED = {"date"}

Answer = tuple[int, bytes, tuple[tuple[str, str], ...]]


class Line:
    """One connection, and so one process: what is compared is one clock's."""

    def __init__(self, service: Service) -> None:
        self._connection = HTTPConnection(HOST, service.port, timeout=PATIENCE)
        self.close = self._connection.close

    def ask(self, path: str, body: Mapping[str, str]) -> tuple[Answer, float]:
        headers = {"Content-Type": "application/json", "X-Request-ID": "the-same-for-all"}
        data = json.dumps(body)
        began = time.perf_counter()
        self._connection.request("POST", path, data, headers)
        response = self._connection.getresponse()
        content = response.read()
        seconds = time.perf_counter() - began
        kept = sorted((k.lower(), v) for k, v in response.getheaders())
        told = tuple((k, v) for k, v in kept if k not in NOT_COMPARED)
        return (response.status, content, told), seconds


def assert_alike(ask: Callable[[str], tuple[Answer, float]], cases: list[str]) -> Answer:
    """All cases answer with the same bytes and in the same time, within 5 ms or a tenth; gives the answer."""
    spread = noise = 0.0
    for _ in range(TRIES):
        answers: set[Answer] = set()
        seconds: dict[str, list[float]] = defaultdict(list)
        for _ in range(SAMPLES):
            for case in random.sample(cases, len(cases)):
                answer, taken = ask(case)
                answers.add(answer)
                seconds[case].append(taken)
        (only,) = answers
        medians = {case: median(taken) for case, taken in seconds.items()}
        spread = max(medians.values()) - min(medians.values())
        within = max(WITHIN_SECONDS, min(medians.values()) * WITHIN_SHARE)
        noise = max(abs(median(each[::2]) - median(each[1::2])) for each in seconds.values())
        print({case: f"{each * 1000:.2f} ms" for case, each in medians.items()})
        if spread < within + 2 * noise:
            return only
    raise AssertionError(f"{spread * 1000:.1f} ms apart, of which {noise * 1000:.1f} may be noise")


@pytest.fixture
def emails(database: Database) -> dict[str, str]:
    """Somebody of each kind; none of them has this password."""
    people: dict[str, Person] = {
        kind: add_person(database)
        for kind in (
            *("wrong", "disabled", "client-less", "without a licence"),
            *("without a password", "with an old hash"),
        )
    }
    weak = "argon2" + PasswordHasher(time_cost=1, memory_cost=8192, parallelism=1).hash("x")
    with database.rows():
        for kind, change in {
            "disabled": {"is_active": False},
            "client-less": {"client": None},
            "without a password": {"password": make_password(None)},
            "with an old hash": {"password": weak},
        }.items():
            User.objects.filter(pk=people[kind].id).update(**change)
        Licence.objects.filter(client__users=people["without a licence"].id).delete()
    return {
        "unknown": "nobody@served.test",
        **{kind: person.email for kind, person in people.items()},
    }


@pytest.fixture
def line(service: Service) -> Iterator[Line]:
    line = Line(service)
    yield line
    line.close()


def test_no_refused_sign_in_can_be_told_from_another(line: Line, emails: dict[str, str]) -> None:
    right = {"disabled", "client-less", "without a licence"}

    def ask(case: str) -> tuple[Answer, float]:
        password = "correct horse battery staple" if case in right else "a wrong password"
        return line.ask("/v1/auth/login", {"email": emails[case], "password": password})

    status, content, _ = assert_alike(ask, list(emails))
    assert (status, json.loads(content)["code"]) == (401, "invalid_credentials")


def test_asking_for_a_reset_tells_nothing(
    line: Line, database: Database, emails: dict[str, str]
) -> None:
    try:
        status, content, _ = assert_alike(
            lambda case: line.ask("/v1/auth/password/reset", {"email": emails[case]}), list(emails)
        )
    finally:
        with database.rows(), connection.cursor() as cursor:
            # Nobody reads them, and others wait until the queue is empty.
            cursor.execute("DELETE FROM procrastinate_jobs WHERE task_name = 'accounts.send_reset'")
    assert (status, content) == (204, b"")
