"""Intake of telemetry batches, against a raw ``COPY`` of the same rows.

Each round sends new events, 500 a batch, over HTTP, and copies the same number of rows of the same shape into the
same table with all its indexes; the two take turns at going first. Both speak over as many connections at once.
For orientation the fastest ``COPY`` there is too: one connection and one statement for all rows.
"""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection
from typing import Any
from uuid import uuid4

import psycopg

from tests.bench.callers import Caller
from tests.bench.figures import Line, in_turns
from tests.bench.length import usual
from tests.bench.stage import HOST, Served, Stage

PART = "telemetry"
BATCH = 500
BATCHES = usual(120, short=8)
CALLERS = 4
COPY = """
COPY telemetry_event
    (event_id, client_id, user_id, name, app, shell_version, occurred_at, received_at, properties)
FROM STDIN
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Events a second, and microseconds of CPU that each cost the service and PostgreSQL."""

    rate: float
    service: float
    postgres: float


def measure(stage: Stage, *, rounds: int) -> list[Line]:
    people = stage.callers(CALLERS)
    with stage.service() as ours:
        ways = {
            "ingest": lambda: _metered(stage, ours, _sending(ours, people)),
            "batches": lambda: _metered(stage, ours, _copying(stage, CALLERS, BATCHES)),
            "whole": lambda: _metered(stage, ours, _copying(stage, 1, 1)),
        }
        for way in ways.values():
            way()
        taken = in_turns(ways, rounds=rounds)
    return [*_rates(taken), *_costs(taken)]


def _rates(taken: dict[str, list[Taken]]) -> list[Line]:
    rates = {name: [each.rate for each in found] for name, found in taken.items()}
    return [
        Line(
            part=PART,
            goal="at least half the events a second of a COPY of the same rows",
            name=f"events taken in over HTTP, {BATCH} a batch, {CALLERS} callers",
            unit="events/s",
            ours=rates["ingest"],
            reference=rates["batches"],
            at_least=0.5,
            against=f"COPY, {BATCH} a statement, {CALLERS} connections",
        ),
        Line(
            part=PART,
            goal="",
            name="the same beside one COPY of all rows",
            unit="events/s",
            ours=rates["ingest"],
            reference=rates["whole"],
            against=f"COPY, {BATCH * BATCHES:,} rows in one statement",
        ),
    ]


def _costs(taken: dict[str, list[Taken]]) -> list[Line]:
    return [
        Line(
            part=PART,
            goal="",
            name="CPU of the service for an event",
            unit="µs/event",
            ours=[each.service for each in taken["ingest"]],
        ),
        Line(
            part=PART,
            goal="",
            name="CPU of PostgreSQL for an event",
            unit="µs/event",
            ours=[each.postgres for each in taken["ingest"]],
            reference=[each.postgres for each in taken["batches"]],
            against=f"COPY, {BATCH} a statement",
        ),
    ]


def _metered(stage: Stage, served: Served, calls: Sequence[Callable[[], int]]) -> Taken:
    """All calls at once; each says how many events it got kept."""
    before, began = stage.cpu(served), time.perf_counter()
    with ThreadPoolExecutor(len(calls)) as pool:
        kept = sum(pool.map(lambda call: call(), calls))
    seconds, after = time.perf_counter() - began, stage.cpu(served)
    assert kept == BATCH * BATCHES
    spent = {name: (after[name] - before[name]) / kept * 1e6 for name in after}
    return Taken(rate=kept / seconds, service=spent["cpu"], postgres=spent["postgres"])


def _sending(served: Served, people: Sequence[Caller]) -> list[Callable[[], int]]:
    """Bodies are made beforehand."""
    bodies = [json.dumps({"events": _events()}).encode() for _ in range(BATCHES)]
    return [
        partial(_send, served.port, person, bodies[number :: len(people)])
        for number, person in enumerate(people)
    ]


def _send(port: int, person: Caller, bodies: Sequence[bytes]) -> int:
    headers = {"Authorization": f"Bearer {person.access}", "Content-Type": "application/json"}
    accepted = 0
    for body in bodies:
        # A connection each, as shells have, so that all workers get their share.
        connection = HTTPConnection(HOST, port)
        connection.request("POST", "/v1/telemetry", body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 202, answer
        accepted += answer["accepted"]
        connection.close()
    return accepted


def _copying(stage: Stage, connections: int, statements: int) -> list[Callable[[], int]]:
    """Rows are written as text beforehand, as ``COPY`` reads them."""
    ready = [_rows(BATCH * BATCHES // statements) for _ in range(statements)]
    return [
        partial(_copy, stage.database.url, ready[number::connections])
        for number in range(connections)
    ]


def _copy(url: str, ready: Sequence[bytes]) -> int:
    copied = 0
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for rows in ready:
            with cursor.copy(COPY) as copy:
                copy.write(rows)
            copied += cursor.rowcount
    return copied


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
    lines: list[str] = []
    while len(lines) < number:
        for each in _events():
            cells = (
                *(each["id"], client, person, each["name"], each["app"], each["shell_version"]),
                *(now, now, json.dumps(each["properties"])),
            )
            lines.append("\t".join(map(str, cells)))
    return "\n".join([*lines, ""]).encode()
