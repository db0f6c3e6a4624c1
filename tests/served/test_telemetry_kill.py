"""Telemetry while web workers and the database are killed: every acknowledged event is kept and counted once."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
from django.db import connections
from django.db.models import Sum
from pytest_django.plugin import DjangoDbBlocker

from telemetry.models import DailyShare, Event
from tests.served.conftest import SignIn
from tests.served.database import Database, new_database
from tests.served.people import add_person
from tests.served.service import WORKERS, Service, manage, running_service
from tests.served.shell import Shell
from tests.tools.children import Child
from tests.tools.folders import sockets_of
from tests.tools.postgres import Postgres
from tests.waiting import eventually

# Nothing beyond packages is needed: this only takes long.
pytestmark = [pytest.mark.wire, pytest.mark.timeout(300)]
BATCHES, EVENTS, CALLERS = 500, 20, 8
# So many acknowledged batches lie between one death and the next: workers and database die in turn.
BETWEEN = 60
PAUSE_SECONDS = 0.05
DEADLINE = 200.0


class Mortal:
    """A database server whose commits last, and which can be killed."""

    def __init__(self, folder: Path, sockets: Path) -> None:
        self._server = Postgres(folder=folder, sockets=sockets, log=folder / "postgres.log")
        self._child: Child = self._server.start()
        self.url = self._server.url

    def kill(self) -> None:
        """All of its processes at once; nothing is written any more. Then it is started again."""
        # Held, it starts no other process meanwhile.
        os.kill(self._child.pid, signal.SIGSTOP)
        doomed = [*_children(self._child.pid), self._child.pid]
        for each in doomed:
            _kill(each)
        eventually(lambda: self._child.ended is not None and not any(map(_lives, doomed)))
        self._child = self._server.start()

    def kill_a_session(self) -> None:
        """One of its processes; the server then ends all others and recovers by itself."""
        sessions = [each for each in _children(self._child.pid) if b"shell" in _title(each)]
        if sessions:
            _kill(sessions[0])

    def stop(self) -> None:
        self._child.stop()


@dataclass
class Acknowledged:
    """The acknowledgements to all shells so far, and the number of missing ones."""

    batches: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0
    refused: int = 0
    accepted: int = 0
    duplicates: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@pytest.fixture
def mortal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mortal]:
    with sockets_of(tmp_path) as sockets:
        server = Mortal(tmp_path, sockets)
        monkeypatch.setenv("DATABASE_URL", server.url)
        monkeypatch.setitem(connections.databases["default"], "HOST", str(sockets))
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def lasting(mortal: Mortal, django_db_blocker: DjangoDbBlocker) -> Iterator[Database]:
    with new_database(django_db_blocker.unblock) as database:
        environ = {**os.environ, "DATABASE_URL": database.url}
        manage(environ, "migrate", "--no-input")
        manage(environ, "rotate_signing_key")
        yield database


@pytest.mark.wall_time
def test_every_acknowledged_event_is_kept_once_whoever_dies(
    mortal: Mortal, lasting: Database, tmp_path: Path, sign_in: SignIn
) -> None:
    person = add_person(lasting)
    batches = [[_event() for _ in range(EVENTS)] for _ in range(BATCHES)]
    told = Acknowledged()
    with running_service(tmp_path, {"DATABASE_URL": lasting.url}) as service:
        shell = sign_in(service, person)
        with ThreadPoolExecutor(CALLERS) as pool:
            calls = [
                pool.submit(_report_all, shell, batches, range(number, BATCHES, CALLERS), told)
                for number in range(CALLERS)
            ]
            deaths = _kill_meanwhile(mortal, service, told)
            for call in calls:
                call.result(DEADLINE)
        # The database was away and not the service, so what is sent again now is all there.
        again = [_sent(shell, batch) for batch in batches[::50]]
        other = add_person(lasting)
        assert _sent(sign_in(service, other), [_event()]) is not None
    with lasting.rows():
        totals = DailyShare.objects.order_by().values_list("holder_id").annotate(Sum("bytes"))
        bytes_of = dict(totals)
        of_person = Event.objects.filter(user_id=person.id)
        kept = Counter(str(each) for each in of_person.values_list("event_id", flat=True))
    assert kept == Counter(each["id"] for batch in batches for each in batch)
    assert bytes_of[person.id] == BATCHES * EVENTS * bytes_of[other.id]
    assert told.batches == Counter(range(BATCHES))
    assert told.accepted + told.duplicates == BATCHES * EVENTS
    # It was no idle moment: answers were lost, and the database was missed.
    assert deaths >= BATCHES // BETWEEN - 1
    assert told.unanswered > 0
    assert told.refused > 0
    assert all(answer is not None and answer["duplicates"] == EVENTS for answer in again)


def _kill_meanwhile(mortal: Mortal, service: Service, told: Acknowledged) -> int:
    """Kills processes until the last batches are under way, and returns how often."""
    ways = cycle([lambda: _kill_workers(service), mortal.kill, mortal.kill_a_session])
    for number in range(1, BATCHES // BETWEEN):
        eventually(lambda least=number * BETWEEN: len(told.batches) >= least, seconds=DEADLINE)
        next(ways)()
    return number


def _kill_workers(service: Service) -> None:
    eventually(lambda: len(service.workers()) == WORKERS)
    for worker in service.workers():
        _kill(worker)


def _report_all(
    shell: Shell, batches: list[list[dict[str, Any]]], numbers: range, told: Acknowledged
) -> None:
    """Each batch until it is acknowledged, as a shell does."""
    deadline = time.monotonic() + DEADLINE
    for number in numbers:
        while (answer := _sent(shell, batches[number], told)) is None:
            assert time.monotonic() < deadline, "nobody answers any more"
            time.sleep(PAUSE_SECONDS)
        with told.lock:
            told.batches[number] += 1
            told.accepted += answer["accepted"]
            told.duplicates += answer["duplicates"]


def _sent(
    shell: Shell, batch: list[dict[str, Any]], told: Acknowledged | None = None
) -> dict[str, Any] | None:
    """The acknowledgement, or None where there was none and the batch has to be sent again."""
    told = told or Acknowledged()
    try:
        response = shell.post("/v1/telemetry", {"events": batch})
    except requests.RequestException:
        with told.lock:
            told.unanswered += 1
        return None
    if response.status_code == 202:
        answer: dict[str, Any] = response.json()
        assert answer["rejected"] == []
        return answer
    assert response.status_code == 503, response.text
    with told.lock:
        told.refused += 1
    return None


def _event() -> dict[str, Any]:
    return {
        "id": str(uuid4()),
        "name": "document.opened",
        "occurred_at": datetime.now(UTC).isoformat(),
        "properties": {"ms": 12},
    }


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _lives(pid: int) -> bool:
    """Returns whether it can still write: a process that only waits to be noticed as dead cannot."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _title(pid: int) -> bytes:
    """Returns the title of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
