"""Taking in a batch: each event on its own merits, all good ones in one statement.

A shell that did not hear the answer sends the batch again, so an event is known by its client and its own id, and
a second copy is counted and not kept, whether it comes later, in the same batch, or at the same moment. The
statement is a transaction of its own: once it has returned, what it counted is committed.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

import psycopg
from django.db import IntegrityError, connection, transaction

from config.problems import Fault, InvalidRequest, RequestTooLarge
from telemetry.events import BadEvent, Reader, Reported

MOST_EVENTS = 500
# Held to before anything is read, by config/bodies.py.
MOST_BYTES = 1024 * 1024


class TooManyEvents(RequestTooLarge):
    """More events than a batch takes."""

    def __init__(self) -> None:
        super().__init__(
            f"A batch takes at most {MOST_EVENTS} events.",
            max_events=MOST_EVENTS,
            max_bytes=MOST_BYTES,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of a batch; the three together are its events. A rejected event has one fault, its first."""

    accepted: int
    duplicates: int
    rejected: Sequence[Fault]


def take_in(*, batch: Mapping[str, Any], client_id: UUID, user_id: UUID, now: datetime) -> Taken:
    """Keeps the good events of ``{"events": [...]}``.

    Raises ``InvalidRequest`` where there is no list of events, ``TooManyEvents``, and the database's own errors:
    nothing is kept then. When it returns, the accepted are committed (outside of any transaction of the caller).
    """
    given = _events_of(batch)
    events, rejected = _read(given, now=now)
    accepted = _keep(list(events.values()), client_id=client_id, user_id=user_id, now=now)
    duplicates = len(given) - len(rejected) - accepted
    return Taken(accepted=accepted, duplicates=duplicates, rejected=rejected)


def _read(given: list[Any], *, now: datetime) -> tuple[dict[str, Reported], list[Fault]]:
    """The good events by their ids, the first of several copies, and a fault for each other."""
    reader = Reader(now=now)
    if ordinary := reader.read_all(given):
        return {each.id: each for each in reversed(ordinary)}, []
    events: dict[str, Reported] = {}
    rejected: list[Fault] = []
    for index, each in enumerate(given):
        try:
            event = reader.read(each)
        except BadEvent as bad:
            fault = bad.fault
            rejected.append(Fault(f"/events/{index}{fault.pointer}", fault.code, fault.detail))
        else:
            events.setdefault(event.id, event)
    return events, rejected


def _events_of(batch: Mapping[str, Any]) -> list[Any]:
    if "events" not in batch:
        raise InvalidRequest(errors=[Fault("/events", "required", "This member is needed.")])
    events = batch["events"]
    if not isinstance(events, list):
        raise InvalidRequest(errors=[Fault("/events", "not_a_list", "This must be a list.")])
    if len(events) > MOST_EVENTS:
        raise TooManyEvents
    return events


# Each column is one text with a line for each event, which both sides read and write several times as fast as an
# array. No value holds a line's end: patterns refuse it, and JSON writes it as an escape. The lines of one event
# without an app or a version are no lines at all, hence coalesce.
_KEEP = """
INSERT INTO telemetry_event
    (event_id, client_id, user_id, name, app, shell_version, occurred_at, received_at, properties)
SELECT event_id::uuid, %b, %b, name, coalesce(app, ''), coalesce(shell_version, ''),
    occurred_at::timestamptz, %b, properties::jsonb
FROM unnest(
    string_to_array(%b, E'\\n'), string_to_array(%b, E'\\n'), string_to_array(%b, E'\\n'),
    string_to_array(%b, E'\\n'), string_to_array(%b, E'\\n'), string_to_array(%b, E'\\n')
) AS given (event_id, name, occurred_at, app, shell_version, properties)
"""
_KEEP_NEW = f"{_KEEP} ON CONFLICT (event_id, client_id) DO NOTHING"


def _keep(events: list[Reported], *, client_id: UUID, user_id: UUID, now: datetime) -> int:
    """How many of the events were new."""
    if not events:
        return 0
    # In one order for everyone: two copies of a batch at the same moment wait for each other, and never crosswise.
    events.sort(key=attrgetter("id"))
    values = [client_id, user_id, now, *map("\n".join, zip(*events, strict=True))]
    try:
        # To be ready for a second copy of each costs the database an eighth; a batch is seldom sent again, and then
        # its first event tells.
        with transaction.atomic() if connection.in_atomic_block else nullcontext():
            return _execute(_KEEP, values)
    except IntegrityError:
        return _execute(_KEEP_NEW, values)


def _execute(statement: str, values: list[Any]) -> int:
    connection.ensure_connection()
    # Not Django's cursor, which writes values into the statement.
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        return cursor.execute(statement, values).rowcount
