"""Writing the audit log. A rule calls :func:`record` inside the transaction of what it does."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from psycopg.types.json import Jsonb

from accounts.models import AuditEvent
from config.database import prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who does something, and from where: a person (``id``), or a command or job by name alone."""

    name: str
    id: UUID | None = None
    address: str | None = None
    request_id: str = ""

    @classmethod
    def command(cls, name: str) -> Self:
        return cls(name=f"manage.py {name}")


def record(
    action: str,
    *,
    by: Actor,
    now: datetime,
    target: str = "",
    target_id: object = "",
    reason: str = "",
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """One act, as ``subject:action``. ``before`` and ``after`` hold what changed, never a secret."""
    values = row_of(
        action,
        by=by,
        now=now,
        target=target,
        target_id=target_id,
        reason=reason,
        before=before,
        after=after,
    )
    with prepared() as cursor:
        cursor.execute(f"{INSERT} VALUES ({VALUES})", values)


# For a statement that writes an event together with what it is about: INSERT, SELECT VALUES, and what row_of() gives.
INSERT = """INSERT INTO accounts_auditevent
    (at, action, actor, actor_id, target, target_id, address, request_id, reason, before, after)"""
VALUES = """%(at)s, %(action)s, %(actor)s, %(actor_id)s, %(target)s, %(target_id)s, %(address)s::inet,
    %(request_id)s, %(reason)s, %(before)s::jsonb, %(after)s::jsonb"""


def row_of(
    action: str,
    *,
    by: Actor,
    now: datetime,
    target: str = "",
    target_id: object = "",
    reason: str = "",
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What :func:`record` would write, by column."""
    return {
        "at": now,
        "action": action,
        "actor": by.name,
        "actor_id": by.id,
        "target": target,
        "target_id": str(target_id),
        "address": by.address or None,
        "request_id": by.request_id,
        "reason": reason,
        "before": None if before is None else Jsonb(before),
        "after": None if after is None else Jsonb(after),
    }


def record_each(
    action: str,
    *,
    by: Actor,
    now: datetime,
    of: Iterable[tuple[str, object]],
    after: dict[str, Any] | None = None,
) -> None:
    """The same act on many: an event for each target, ``of`` names and ids, written together."""
    AuditEvent.objects.bulk_create(
        _event(action, by=by, now=now, target=target, target_id=target_id, after=after)
        for target, target_id in of
    )


def _event(
    action: str,
    *,
    by: Actor,
    now: datetime,
    target: str,
    target_id: object,
    after: dict[str, Any] | None,
) -> AuditEvent:
    return AuditEvent(
        at=now,
        action=action,
        actor=by.name,
        actor_id=by.id,
        target=target,
        target_id=str(target_id),
        address=by.address,
        request_id=by.request_id,
        after=after,
    )
