"""Writing the audit log. A rule calls :func:`record` inside the transaction of what it does."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from accounts.models import AuditEvent


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
    AuditEvent.objects.create(
        at=now,
        action=action,
        actor=by.name,
        actor_id=by.id,
        target=target,
        target_id=str(target_id),
        address=by.address,
        request_id=by.request_id,
        reason=reason,
        before=before,
        after=after,
    )
