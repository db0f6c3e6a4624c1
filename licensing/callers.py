"""The caller of a request: user, session, client, licence and plan, from their rows, in one query."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast
from uuid import UUID

from rest_framework.request import Request

from accounts.sessions.access_tokens import Claims
from accounts.sessions.authentication import Claimed
from accounts.sessions.claims import ClaimsSource
from config.statements import Statement
from licensing.models import Standing, merged


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls and what the licence says. Stands where Django has a user; it is always authenticated."""

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
        """Whether anything at all may be asked: enabled, signed in still, and of a client with a licence."""
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


def claimed_by(request: Request) -> Claimed:
    """Whom the token of a request names, where nobody's rows have been asked for."""
    return cast("Claimed", request.user)


# It has not been ended, nor had its time.
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
# Of whom a token names, if they may call and their licence works: as ``may_call`` and ``is_suspended`` say of a caller,
# for a statement of which that is the first half.
WHO_WORKS = f"""
SELECT client.id AS client_id, plan.id AS plan_id,
       plan.monthly_input_tokens, plan.monthly_output_tokens, plan.daily_tokens
FROM accounts_session session {_OF_SESSION}
WHERE session.id = %(session)s AND session.user_id = %(user)s AND {_LASTS}
  AND person.is_active AND person.epoch = %(epoch)s::integer AND licence.status <> '{Standing.SUSPENDED.value}'
"""  # noqa: S608 - built from constants of this project
# A session that stands is found by its primary key, and all else by others.
_QUESTION = Statement(
    f"""
SELECT {_FIELDS} FROM accounts_session session {_OF_SESSION}
WHERE session.id = %s AND session.user_id = %s
""",  # noqa: S608 - built from constants of this project
    of_many=f"""
SELECT asked.number, {_FIELDS}
FROM unnest(%s::uuid[], %s::uuid[]) WITH ORDINALITY AS asked(session_id, user_id, number)
JOIN accounts_session session ON session.id = asked.session_id AND session.user_id = asked.user_id {_OF_SESSION}
""",  # noqa: S608 - as above
)


def load_caller(*, user_id: UUID, session_id: UUID) -> Caller | None:
    """The caller that a session of a user stands for, or None where there is no such session."""
    row = _QUESTION.row((session_id, user_id))
    return Caller(*row) if row else None


def _claims(
    client_id: UUID, plan: str, of_plan: Sequence[str], of_licence: Sequence[str]
) -> Claims:
    return Claims(
        client_id=client_id, plan=plan, entitlements=merged(list(of_plan), list(of_licence))
    )


# What a token says of a user's client.
CLAIMS = ClaimsSource(
    sql="""
        SELECT licence.client_id, plan.name, plan.entitlements AS of_plan, licence.entitlements AS of_licence
        FROM licensing_licence licence
        JOIN licensing_plan plan ON plan.id = licence.plan_id
        WHERE licence.client_id = person.client_id
    """,
    read=_claims,
)
