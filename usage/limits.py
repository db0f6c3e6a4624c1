"""What a person may spend now: the plan's numbers, an operator's override instead, extra allowances on top.

The arithmetic is in the database, so that admission stays one statement and every reader has the same numbers.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import connection


class Caps(NamedTuple):
    """What counts for one person now, in tokens; overrides and extra allowances included. None: no cap."""

    input: int | None
    output: int | None
    day: int | None


def limits_of(*, user: str, plan_input: str, plan_output: str, plan_day: str) -> str:
    """A query of one row for a person: ``input_cap``, ``output_cap``, ``day_cap`` (NULL: no cap) and ``stopped``.

    Each argument is SQL for a value; the query takes ``%(now)s`` besides. An empty daily limit is twice the
    month's total over 30 days, so it grows with what comes on top of the month; a number on top of "no cap"
    leaves no cap, because a sum with NULL is NULL.
    """
    return f"""
    SELECT i AS input_cap, o AS output_cap, COALESCE(d, 2 * (i + o) / 30) + more_d AS day_cap, stopped
    FROM (
        SELECT COALESCE(v.input, {plan_input}) + v.more_input AS i,
               COALESCE(v.output, {plan_output}) + v.more_output AS o,
               COALESCE(v.day, {plan_day}) AS d, v.more_day AS more_d,
               EXISTS (
                   SELECT 1 FROM usage_stop
                   WHERE user_id = {user} AND (ends_at IS NULL OR ends_at > %(now)s)
               ) AS stopped
        FROM (
            SELECT (array_agg(monthly_input_tokens ORDER BY id DESC) FILTER (WHERE NOT is_extra))[1] AS input,
                   (array_agg(monthly_output_tokens ORDER BY id DESC) FILTER (WHERE NOT is_extra))[1] AS output,
                   (array_agg(daily_tokens ORDER BY id DESC) FILTER (WHERE NOT is_extra))[1] AS day,
                   COALESCE(sum(monthly_input_tokens) FILTER (WHERE is_extra), 0)::bigint AS more_input,
                   COALESCE(sum(monthly_output_tokens) FILTER (WHERE is_extra), 0)::bigint AS more_output,
                   COALESCE(sum(daily_tokens) FILTER (WHERE is_extra), 0)::bigint AS more_day
            FROM usage_override
            WHERE user_id = {user} AND starts_at <= %(now)s AND ends_at > %(now)s
        ) AS v
    ) AS numbers
    """  # noqa: S608 - built from constants of this project


# People with the caps that count for them; the columns of a row of ``p`` and ``c`` can be asked for.
PEOPLE_AND_CAPS = f"""
    accounts_user AS u
    JOIN licensing_licence AS w ON w.client_id = u.client_id
    JOIN licensing_plan AS p ON p.id = w.plan_id
    CROSS JOIN LATERAL ({
    limits_of(
        user="u.id",
        plan_input="p.monthly_input_tokens",
        plan_output="p.monthly_output_tokens",
        plan_day="p.daily_tokens",
    )
}) AS c
"""

_OF_ALL = f"SELECT u.id, c.input_cap, c.output_cap, c.day_cap FROM {PEOPLE_AND_CAPS} WHERE u.id = ANY(%(users)s)"  # noqa: S608 - as above


def effective_of_all(*, user_ids: Iterable[UUID], now: datetime) -> dict[UUID, Caps]:
    """The caps of several people now; whoever has no client with a licence is missing."""
    with connection.cursor() as cursor:
        cursor.execute(_OF_ALL, {"users": list(user_ids), "now": now})
        return {row[0]: Caps(*row[1:]) for row in cursor.fetchall()}
