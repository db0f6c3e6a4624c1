"""Limits: the numbers of the plan or of an override, plus extra allowances; and the usage beside them.

The database does the arithmetic, so that admission stays one statement and every reader gets the same numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from math import ceil
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from psycopg.types.numeric import Int8

from config.platform.periods import Period
from licensing.callers import Caller
from licensing.models import Plan

# Fewer output tokens than this count as none: an answer that is cut at once is useless.
LEAST_OUTPUT = 16
# A cap of input or of a day is reached when not even a small prompt fits: one of so many estimated tokens, or of this
# percent of the cap if that is fewer.
SMALL_PROMPT = 1_000
SMALL_PERCENT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCaps:
    """A plan's numbers, in tokens; None means no cap, and for ``daily`` the rule of :func:`limits_of`.

    ``cached_percent`` of the input that a provider reads from a cache counts.
    """

    monthly_input: int | None
    monthly_output: int | None
    daily: int | None
    cached_percent: int = 100

    @classmethod
    def of(cls, plan: Caller | Plan) -> "PlanCaps":
        """The numbers of a plan, or of a caller's."""
        return cls(
            monthly_input=plan.monthly_input_tokens,
            monthly_output=plan.monthly_output_tokens,
            daily=plan.daily_tokens,
            cached_percent=plan.cached_input_percent,
        )

    def values(self) -> dict[str, Any]:
        """The values of :data:`LIMITS`; of one type whatever their size, so that a statement is prepared once."""
        numbers = (self.monthly_input, self.monthly_output, self.daily)
        names = ("plan_input", "plan_output", "plan_day")
        return {
            name: None if number is None else Int8(number)
            for name, number in zip(names, numbers, strict=True)
        }


class Balance(NamedTuple):
    """A person's limits beside the totals of this month and its day: zeros and no ``day`` before the first call.

    The day's numbers count for ``day``. Tokens.
    """

    stopped: bool
    input_cap: int | None
    output_cap: int | None
    day_cap: int | None
    day: date | None
    input_used: int
    input_reserved: int
    output_used: int
    output_reserved: int
    day_used: int
    day_reserved: int
    budget_spent: bool

    def of_day(self, day: date) -> tuple[int, int]:
        """Used and reserved of that day."""
        is_it = self.day is not None and self.day >= day
        return (self.day_used, self.day_reserved) if is_it else (0, 0)


class Caps(NamedTuple):
    """A person's caps now, in tokens, with overrides and extra allowances. None: no cap."""

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
    ) AS s
    """  # nosec B608 # noqa: S608 - built from constants of this project


# The limits of ``%(user)s`` with a plan's numbers given as values.
LIMITS = limits_of(
    user="%(user)s",
    plan_input="%(plan_input)s::bigint",
    plan_output="%(plan_output)s::bigint",
    plan_day="%(plan_day)s::bigint",
)

# The budget of ``%(client)s`` is spent, as the worker last summed it for this month.
BUDGET_SPENT = """EXISTS (
    SELECT 1 FROM usage_budget
    WHERE client_id = %(client)s AND period = %(period)s AND spent >= monthly
)"""

# The columns of a ``Balance``.
_BALANCE = f"""
    SELECT l.stopped, l.input_cap, l.output_cap, l.day_cap, m.day,
           COALESCE(m.input_used, 0), COALESCE(m.input_reserved, 0), COALESCE(m.output_used, 0),
           COALESCE(m.output_reserved, 0), COALESCE(m.day_used, 0), COALESCE(m.day_reserved, 0),
           {BUDGET_SPENT}
    FROM ({LIMITS}) AS l
    LEFT JOIN usage_monthlyusage AS m ON m.user_id = %(user)s AND m.period = %(period)s
"""  # nosec B608 # noqa: S608 - as above

_OF_ALL = f"""
    SELECT u.id, c.input_cap, c.output_cap, c.day_cap
    FROM accounts_user AS u
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
    WHERE u.id = ANY(%(users)s)
"""  # nosec B608 # noqa: S608 - as above


def balance(
    *, user_id: UUID, plan: PlanCaps, now: datetime, client_id: UUID | None = None
) -> Balance:
    """The balance of a person now, by the numbers of their plan; with the budget of a client."""
    values = {
        "user": user_id,
        "client": client_id,
        "now": now,
        "period": Period.of(now).month,
        **plan.values(),
    }
    with connection.cursor() as cursor:
        cursor.execute(_BALANCE, values)
        return Balance(*cursor.fetchone())


def effective_of_all(*, user_ids: Iterable[UUID], now: datetime) -> dict[UUID, Caps]:
    """The caps of several people now; people without a licensed client are missing."""
    with connection.cursor() as cursor:
        cursor.execute(_OF_ALL, {"users": list(user_ids), "now": now})
        return {row[0]: Caps(*row[1:]) for row in cursor.fetchall()}


def small_prompt(cap: int) -> int:
    """The tokens of a small prompt beside a cap: with fewer left, the cap counts as reached."""
    return max(1, min(SMALL_PROMPT, cap * SMALL_PERCENT // 100))


def remaining_headers(
    *, month: int | None, day: int | None, day_cap: int | None, now: datetime
) -> dict[str, str]:
    """The headers with the tokens left beside a call, in our words and in OpenAI's. None: no cap."""
    period, lefts = Period.of(now), [left for left in (month, day) if left is not None]
    openai: dict[str, str] = {}
    if lefts:
        until = period.next_day if min(lefts) == day else period.next_month
        openai["x-ratelimit-remaining-tokens"] = str(max(0, min(lefts)))
        openai["x-ratelimit-reset-tokens"] = f"{ceil((until - now).total_seconds())}s"
    if day_cap is not None:
        openai["x-ratelimit-limit-tokens"] = str(day_cap)
    return openai | {
        f"X-Tokens-Remaining-{name}": "unlimited" if left is None else str(max(0, left))
        for name, left in (("Month", month), ("Day", day))
    }
