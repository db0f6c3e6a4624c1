"""How fast batches of telemetry are taken in, against a raw ``COPY`` of the same rows.

``python -m config.local with -- python -m tests.bench.telemetry [rounds]``

The service as it is run, two web workers, on a PostgreSQL that writes to disk before it says so. Each round sends new
events, 500 a batch, over HTTP, and copies the same number of rows of the same shape into the same table with all its
indexes; the two take turns at going first. Both speak over as many connections at once; the fastest ``COPY`` there
is, one connection and one statement for all rows, is printed too.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit
from uuid import uuid4

import django
import psycopg

from config.local.folders import sockets_of
from config.local.postgres import Postgres

BATCH = 500
BATCHES = 120
CALLERS = 4
ROUNDS = 5
COLUMNS = (
    "event_id, client_id, user_id, name, app, shell_version, occurred_at, received_at, properties"
)


def main(arguments: Sequence[str]) -> int:
    """Prints events per second of each way and their ratios; always 0, because it judges nothing."""
    rounds = int(arguments[0]) if arguments else ROUNDS
    with tempfile.TemporaryDirectory(prefix="bench-telemetry-") as name, _durable(Path(name)):
        measured = _measured(Path(name), rounds)
    print(f"{'events/s':28}{'median':>10}{'least':>10}{'most':>10}")
    for way, rates in measured.items():
        print(f"{way:28}{statistics.median(rates):10,.0f}{min(rates):10,.0f}{max(rates):10,.0f}")
    ingest = measured.pop("ingest over HTTP")
    for way, rates in measured.items():
        ratios = [mine / other for mine, other in zip(ingest, rates, strict=True)]
        print(
            f"ingest / {way:25} {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        )
    return 0


@contextmanager
def _durable(folder: Path) -> Iterator[None]:
    """``DATABASE_URL`` is that of a server whose commits last."""
    with sockets_of(folder) as sockets:
        server = Postgres(folder=folder, sockets=sockets, log=folder / "postgres.log")
        child = server.start()
        try:
            with patch.dict(os.environ, {"DATABASE_URL": server.url}):
                yield
        finally:
            child.stop()


def _measured(folder: Path, rounds: int) -> dict[str, list[float]]:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    # Only now: they import models, and read where the database is.
    from tests.served.database import new_database
    from tests.served.people import add_person
    from tests.served.service import manage, running_service
    from tests.served.shell import Shell

    with new_database(nullcontext) as database:
        environ = {"DATABASE_URL": database.url}
        manage({**os.environ, **environ}, "migrate", "--no-input")
        manage({**os.environ, **environ}, "rotate_signing_key")
        person = add_person(database)
        with running_service(folder, environ) as service:
            shell = Shell(service.url)
            assert shell.login(person.email, person.password).status_code == 200
            ways = {
                "ingest over HTTP": lambda: _send(service.url, shell.access),
                "COPY, a batch a statement": lambda: _copy(database.url, CALLERS, BATCHES),
                "COPY, one connection": lambda: _copy(database.url, 1, BATCHES),
                "COPY, one statement": lambda: _copy(database.url, 1, 1),
            }
            for way in ways.values():
                way()
            return _in_turns(ways, rounds)


def _in_turns(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    measured: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in list(ways) if number % 2 == 0 else reversed(ways):
            measured[way].append(ways[way]())
    return measured


def _send(url: str, token: str) -> float:
    """Events per second that the service acknowledged; bodies are made beforehand."""
    address = urlsplit(url)
    bodies = [json.dumps({"events": _events()}).encode() for _ in range(BATCHES)]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(number: int) -> int:
        accepted = 0
        for body in bodies[number::CALLERS]:
            # A connection each, as shells have, so that all workers get their share.
            connection = HTTPConnection(address.hostname or "", address.port)
            connection.request("POST", "/v1/telemetry", body, headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
            assert response.status == 202, answer
            accepted += answer["accepted"]
            connection.close()
        return accepted

    return _rate(call, CALLERS)


def _copy(url: str, callers: int, statements: int) -> float:
    """Events per second; rows are written as text beforehand, as ``COPY`` reads them."""
    ready = [_rows(BATCH * BATCHES // statements) for _ in range(statements)]

    def call(number: int) -> int:
        copied = 0
        with psycopg.connect(url, autocommit=True) as connection:
            for rows in ready[number::callers]:
                with connection.cursor() as cursor:
                    with cursor.copy(f"COPY telemetry_event ({COLUMNS}) FROM STDIN") as copy:
                        copy.write(rows)
                    copied += cursor.rowcount
        return copied

    return _rate(call, callers)


def _rate(call: Callable[[int], int], callers: int) -> float:
    began = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        kept = sum(pool.map(call, range(callers)))
    seconds = time.perf_counter() - began
    assert kept == BATCH * BATCHES
    return kept / seconds


def _events() -> list[dict[str, Any]]:
    now = datetime.now(UTC).isoformat()
    return [
        {
            "id": str(uuid4()),
            "name": f"document.{('opened', 'saved', 'closed')[number % 3]}",
            "occurred_at": now,
            "properties": {"ms": number, "kind": "sheet", "from": "the list of files", "ok": True},
            "app": "sheets",
            "shell_version": "1.2.3",
        }
        for number in range(BATCH)
    ]


def _rows(number: int) -> bytes:
    client, person, now = uuid4(), uuid4(), datetime.now(UTC).isoformat()
    lines = []
    while len(lines) < number:
        for each in _events():
            properties = json.dumps(each["properties"])
            cells = (
                each["id"],
                client,
                person,
                each["name"],
                each["app"],
                each["shell_version"],
                now,
                now,
            )
            lines.append("\t".join([*map(str, cells), properties]))
    return "\n".join([*lines, ""]).encode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
