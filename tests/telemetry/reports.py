"""Events and batches as shells send them."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from telemetry import events
from telemetry.events import ReportedEvent
from telemetry.intake import Taken, take_in

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
CLIENT, PERSON = uuid4(), uuid4()


def event(**members: Any) -> dict[str, Any]:
    """A good event with these members; a member given as ... is left out."""
    whole = {
        "id": str(uuid4()),
        "name": "document.opened",
        "occurred_at": "2026-11-20T11:59:00Z",
        "properties": {"ms": 12},
        "app": "sheets",
        "shell_version": "1.2.3",
        **members,
    }
    return {name: value for name, value in whole.items() if value is not ...}


def report(*given: Any, client: UUID = CLIENT, now: datetime = NOON) -> Taken:
    return take_in(batch={"events": list(given)}, client_id=client, user_id=PERSON, now=now)


def read(given: Any, *, now: datetime = NOON) -> ReportedEvent:
    return events.read(given, now=now)
