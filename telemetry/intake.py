"""Telemetry intake: checks each event of a batch by itself and stores the good ones in one statement.

A shell that lost the answer sends the batch again. An event is identified by its client and its own id; a second copy
is counted and not stored, whether it comes later, in the same batch, or at the same moment. The statement is a
transaction by itself: the events it counts as accepted are committed, and so are their bytes on the day.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from time import monotonic, sleep
from typing import Any
from uuid import UUID

from django.conf import settings

from config.platform.concurrency.greenlets import WorkerThread
from config.platform.db.connections import release_connection
from config.platform.problems.problem import Fault, InvalidRequest, RefusedUntil, RequestTooLarge
from telemetry import statements
from telemetry.events import BadEvent, ReportedEvent, read
from telemetry.models import DailyShare, Event
from telemetry.volumes import midnight

MIB = 1024 * 1024
MOST_EVENTS = 500
# Enforced by config/platform/edge/body_limits.py before the body is read.
MOST_BYTES = MIB
# A batch of more bytes is checked off the event loop.
LARGE = 64 * 1024

Validated = tuple[dict[str, ReportedEvent], list[Fault], float]
_checking = WorkerThread(
    "A lot of telemetry is being checked just now. Please send this again in a moment."
)


class TooManyEvents(RequestTooLarge):
    """Refuses a batch of too many events."""

    def __init__(self) -> None:
        super().__init__(
            f"A batch can have at most {MOST_EVENTS} events.",
            max_events=MOST_EVENTS,
            max_bytes=MOST_BYTES,
        )


class TelemetryFull(RefusedUntil):
    """The client has stored what it may in a day, or the person a quarter of it."""

    code = "telemetry_full"
    title = "Telemetry is full"
    default_detail = "Today's telemetry is full. It resets at midnight UTC; keep events until then."


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The result of a batch: each event is accepted, a duplicate, or rejected with its first fault."""

    accepted: int
    duplicates: int
    rejected: Sequence[Fault]


def take_in(
    *, batch: Mapping[str, Any], client_id: UUID, user_id: UUID, now: datetime, size: int = 0
) -> Taken:
    """Stores the good events of ``{"events": [...]}``. ``size``: the bytes of the batch.

    Raises ``InvalidRequest`` if there is no list of events, ``TooManyEvents``, ``TelemetryFull``, database errors, and
    ``ServiceUnavailable`` while other large batches are checked; then nothing is stored. On return the accepted events
    are committed, unless the caller has a transaction open.
    """
    given = _events_of(batch)
    if size > LARGE:
        # The patterns of secrets take up to half a second for the largest batch.
        release_connection()
        with _checking.share_of(user_id):
            events, rejected, seconds = _checking.run(_validated, given, now=now)
            # One person leaves others half of the time at least.
            sleep(seconds)
    else:
        events, rejected, _ = _validated(given, now=now)
    accepted = _keep(list(events.values()), client_id=client_id, user_id=user_id, now=now)
    duplicates = len(given) - len(rejected) - accepted
    return Taken(accepted=accepted, duplicates=duplicates, rejected=rejected)


def _validated(given: list[Any], *, now: datetime) -> Validated:
    """The good events by id (of several copies the first), a fault for each of the others, and the seconds it took."""
    began = monotonic()
    events: dict[str, ReportedEvent] = {}
    rejected: list[Fault] = []
    for index, each in enumerate(given):
        try:
            event = read(each, now=now)
        except BadEvent as bad:
            fault = bad.fault
            rejected.append(Fault(f"/events/{index}{fault.pointer}", fault.code, fault.detail))
        else:
            events.setdefault(event.id, event)
    return events, rejected, monotonic() - began


def _events_of(batch: Mapping[str, Any]) -> list[Any]:
    if "events" not in batch:
        raise InvalidRequest(errors=[Fault("/events", "required", "This member is required.")])
    events = batch["events"]
    if not isinstance(events, list):
        raise InvalidRequest(errors=[Fault("/events", "not_a_list", "This must be a list.")])
    if len(events) > MOST_EVENTS:
        raise TooManyEvents
    return events


def _keep(events: list[ReportedEvent], *, client_id: UUID, user_id: UUID, now: datetime) -> int:
    """Stores the events; returns how many of them were new."""
    if not events:
        return 0
    # One order for all: two copies of a batch at the same moment wait for each other and never deadlock.
    events.sort(key=attrgetter("id"))
    day, most = now.astimezone(UTC).date(), settings.TELEMETRY_DAILY_MB * MIB
    texts = map("\n".join, zip(*events, strict=True))
    values: dict[str, Any] = dict(zip(ReportedEvent._fields, texts, strict=True))
    values |= {"client": client_id, "user": user_id, "now": now, "day": day, "most": most}
    is_full, new = statements.keep_new(values)
    if is_full:
        ids = [each.id for each in events]
        if Event.objects.filter(client_id=client_id, event_id__in=ids).count() == len(ids):
            # Sent again after a lost answer.
            return 0
        # The row of which operators hear.
        row = DailyShare(day=day, client_id=client_id, holder_id=client_id)
        DailyShare.objects.bulk_create([row], ignore_conflicts=True)
        raise TelemetryFull(now=now, until=midnight(day + timedelta(days=1)))
    return new
