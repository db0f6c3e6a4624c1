"""The caller of a request: user, session, client, licence and plan, from their rows, in one query."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast
from uuid import UUID

from rest_framework.request import Request

from accounts.sessions.access_tokens import Claims
from config.db.batching import BatchedStatement
from licensing.models import Standing, merged


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller with its licence, in place of Django's user."""

    user_id: UUID
    email: str
    epoch: int
    is_active: bool
    session_id: UUID
    session_lasts: bool
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
        """Whether the caller is enabled, in a valid session, and of a client with a licence."""
        return self.is_active and self.session_lasts and self.status is not None

    @property
    def is_suspended(self) -> bool:
        return self.status == Standing.SUSPENDED

    @property
    def entitlements(self) -> list[str]:
        return merged(list(self.plan_entitlements or ()), list(self.own_entitlements or ()))


def caller_of(request: Request) -> Caller:
    """The caller of an authenticated request."""
    return cast("Caller", request.user)


# Whether the session has neither ended nor expired.
_LASTS = "session.ended_at IS NULL AND (session.expires_at IS NULL OR session.expires_at > now())"
# In the order of the caller's fields.
_FIELDS = f"""
person.id, person.email, person.epoch, person.is_active, session.id, {_LASTS}, client.id, client.name,
licence.status, licence.grace_until, plan.id, plan.name, plan.entitlements, licence.entitlements,
plan.monthly_input_tokens, plan.monthly_output_tokens, plan.daily_tokens
"""
_OF_SESSION = """
JOIN accounts_user person ON person.id = session.user_id
LEFT JOIN accounts_client client ON client.id = person.client_id
LEFT JOIN licensing_licence licence ON licence.client_id = client.id
LEFT JOIN licensing_plan plan ON plan.id = licence.plan_id
"""
# The session is found by its primary key, and the other rows by theirs.
_CALLER = BatchedStatement(
    f"""
SELECT {_FIELDS} FROM accounts_session session {_OF_SESSION}
WHERE session.id = %s AND session.user_id = %s
"""  # nosec B608 # noqa: S608 - built from constants of this project
)


def load_caller(*, user_id: UUID, session_id: UUID) -> Caller | None:
    """The caller of a user's session, or None if there is no such session."""
    row = _CALLER.row((session_id, user_id))
    return Caller(*row) if row else None


_CLAIMS = BatchedStatement(
    """
SELECT licence.client_id, plan.name, plan.entitlements, licence.entitlements
FROM accounts_user person
JOIN licensing_licence licence ON licence.client_id = person.client_id
JOIN licensing_plan plan ON plan.id = licence.plan_id
WHERE person.id = %s
"""
)


def claims_of(user_id: UUID) -> Claims | None:
    """The claims about a user's client, or None without a licensed client."""
    row = _CLAIMS.row((user_id,))
    if row is None:
        return None
    client_id, plan, of_plan, of_licence = row
    return Claims(client_id=client_id, plan=plan, entitlements=merged(of_plan, of_licence))
