"""The caller of a request: user, session, client, licence and plan, from their rows, in one query."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast
from uuid import UUID

from django.db.models import F
from rest_framework.request import Request

from accounts.access_tokens import Claims
from accounts.models import Session
from licensing.models import Licence, Standing, merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls and what the licence says. Stands where Django has a user; it is always authenticated."""

    user_id: UUID
    email: str
    epoch: int
    is_active: bool
    session_id: UUID
    session_ended_at: datetime | None
    client_id: UUID | None
    client_name: str | None
    status: str | None
    grace_until: datetime | None
    plan_id: int | None
    plan: str | None
    plan_entitlements: Sequence[str] | None
    own_entitlements: Sequence[str] | None
    monthly_input_tokens: int | None
    monthly_output_tokens: int | None
    daily_tokens: int | None

    is_authenticated = True

    @property
    def pk(self) -> UUID:
        return self.user_id

    @property
    def may_call(self) -> bool:
        """Whether anything at all may be asked: enabled, signed in still, and of a client with a licence."""
        return self.is_active and self.session_ended_at is None and self.status is not None

    @property
    def is_suspended(self) -> bool:
        return self.status == Standing.SUSPENDED

    @property
    def entitlements(self) -> list[str]:
        return merged(list(self.plan_entitlements or ()), list(self.own_entitlements or ()))


def caller_of(request: Request) -> Caller:
    """The caller of an authenticated request."""
    return cast("Caller", request.user)


# Column by name of the caller's field, as seen from a session.
_COLUMNS = {
    "email": "user__email",
    "epoch": "user__epoch",
    "is_active": "user__is_active",
    "session_id": "id",
    "session_ended_at": "ended_at",
    "client_id": "user__client_id",
    "client_name": "user__client__name",
    "status": "user__client__licence__status",
    "grace_until": "user__client__licence__grace_until",
    "plan_id": "user__client__licence__plan_id",
    "plan": "user__client__licence__plan__name",
    "plan_entitlements": "user__client__licence__plan__entitlements",
    "own_entitlements": "user__client__licence__entitlements",
    "monthly_input_tokens": "user__client__licence__plan__monthly_input_tokens",
    "monthly_output_tokens": "user__client__licence__plan__monthly_output_tokens",
    "daily_tokens": "user__client__licence__plan__daily_tokens",
}
_SESSIONS = Session.objects.order_by().values_list(
    "user_id", *(F(column) for column in _COLUMNS.values())
)
_FIELDS = ("user_id", *_COLUMNS)


def load_caller(*, user_id: UUID, session_id: UUID) -> Caller | None:
    """The caller that a session of a user stands for, or None where there is no such session."""
    row = _SESSIONS.filter(pk=session_id, user_id=user_id).first()
    return Caller(**dict(zip(_FIELDS, row, strict=True))) if row else None


def claims_of_user(user_id: UUID) -> Claims | None:
    """What a token says of a user's client, or None where there is no client with a licence."""
    licence = Licence.objects.select_related("plan").filter(client__users=user_id).first()
    if licence is None:
        return None
    return Claims(
        client_id=licence.client_id, plan=licence.plan.name, entitlements=licence.all_entitlements
    )
