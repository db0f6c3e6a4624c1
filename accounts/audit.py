"""The audit log. A rule calls :func:`record` inside its own transaction."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from django.db.models import Model

from accounts.models import AuditEvent
from config.platform.problems.problem import Fault, InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The person (``id``), command or job (by name alone) that acts, and its address."""

    name: str
    id: UUID | None = None
    address: str | None = None
    request_id: str = ""

    @classmethod
    def command(cls, name: str) -> Self:
        return cls(name=f"manage.py {name}")


def reason_faults(reason: str) -> list[Fault]:
    """The fault of a change without a reason; none if it has one."""
    return [] if reason.strip() else [Fault("/reason", "required", "Give a reason.")]


def check_reason(reason: str) -> None:
    """Raises ``InvalidRequest`` without a reason."""
    if faults := reason_faults(reason):
        raise InvalidRequest(errors=faults)


def record(
    action: str,
    target: Model | str = "",
    *,
    by: Actor,
    now: datetime,
    target_id: object = "",
    reason: str = "",
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """Writes one event, named ``subject:action``. ``before`` and ``after`` hold the change, never a secret.

    ``target`` is the row that the action changed, or its name beside its ``target_id``.
    """
    event = _event(action, by=by, now=now, target=target, target_id=target_id, after=after)
    event.reason, event.before = reason, before
    event.save(force_insert=True)


def record_each(
    action: str,
    *,
    by: Actor,
    now: datetime,
    of: Iterable[tuple[str, object]],
    after: dict[str, Any] | None = None,
) -> None:
    """Writes one event for each target (name and id) of an action, all in one statement."""
    AuditEvent.objects.bulk_create(
        _event(action, by=by, now=now, target=target, target_id=target_id, after=after)
        for target, target_id in of
    )


def _event(
    action: str,
    *,
    by: Actor,
    now: datetime,
    target: Model | str,
    target_id: object,
    after: dict[str, Any] | None,
) -> AuditEvent:
    return AuditEvent(
        at=now,
        action=action,
        actor=by.name,
        actor_id=by.id,
        target=str(target),
        target_id=str(target.pk if isinstance(target, Model) else target_id),
        address=by.address or None,
        request_id=by.request_id,
        after=after,
    )
