"""What a token says of plan and entitlements comes from a higher floor, which settings name."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string

from accounts.sessions.access_tokens import Claims
from config.database import prepared


class ClaimsSource(NamedTuple):
    """``sql`` selects one row of columns, the first never null, for the client of a row called ``person``, or none.

    ``read`` makes claims of these columns. So whoever reads a person's row has the claims in the same statement.
    """

    sql: str
    read: Callable[..., Claims]


def claims_of(user_id: UUID) -> Claims | None:
    """The claims of a user's client, or None where there is no client with a licence."""
    with prepared() as cursor:
        cursor.execute(_question(), (user_id,))
        row = cursor.fetchone()
    return read(row) if row else None


def with_claims(question: str) -> str:
    """A question that says ``{claims}`` among its joins, where its ``person`` is known, and selects ``claims.*``."""
    return question.format(claims=f"LEFT JOIN LATERAL ({_source().sql}) claims ON TRUE")


def read(columns: Sequence[Any]) -> Claims | None:
    """The claims in what ``claims.*`` gave."""
    return None if columns[0] is None else _source().read(*columns)


@cache
def _question() -> str:
    return with_claims("SELECT claims.* FROM accounts_user person {claims} WHERE person.id = %s")


@cache
def _source() -> ClaimsSource:
    source: ClaimsSource = import_string(settings.ACCESS_CLAIMS)
    return source
