"""Where a person stands: what they may spend now, beside what they have spent and what running calls hold.

One statement reads all of it, for whoever is told why a call is refused, and for whoever looks at their month.
"""

from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.numeric import Int8

from config.statements import Statement
from licensing.callers import Caller
from usage.alerts import DAILY_LIMIT_IS_NOTED
from usage.limits import limits_of
from usage.periods import Period


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCaps:
    """A plan's numbers, in tokens; None means no cap, and for ``daily`` the rule of :func:`usage.limits.limits_of`."""

    monthly_input: int | None
    monthly_output: int | None
    daily: int | None

    @classmethod
    def of(cls, caller: Caller) -> "PlanCaps":
        return cls(
            monthly_input=caller.monthly_input_tokens,
            monthly_output=caller.monthly_output_tokens,
            daily=caller.daily_tokens,
        )


class Balance(NamedTuple):
    """A person's limits beside what this month and its day hold: zeros, and no ``day``, before its first call.

    ``prompt`` is the estimate for a call that was looked at in passing. The day's numbers count for ``day``.
    ``day_is_noted``: that the daily limit is reached, operators hear already. Tokens.
    """

    stopped: bool
    input_cap: int | None
    output_cap: int | None
    day_cap: int | None
    prompt: int
    day: date | None
    input_used: int
    input_reserved: int
    output_used: int
    output_reserved: int
    day_used: int
    day_reserved: int
    day_is_noted: bool

    def of_day(self, day: date) -> tuple[int, int]:
        """Used and reserved of that day."""
        is_it = self.day is not None and self.day >= day
        return (self.day_used, self.day_reserved) if is_it else (0, 0)


# Limits of now of ``c``, who calls, and whether an operator has stopped their calls.
LIMITS = limits_of(
    user="%(user)s",
    plan_input="c.monthly_input_tokens",
    plan_output="c.monthly_output_tokens",
    plan_day="c.daily_tokens",
)

# A caller whose plan is known, and one who asks for nothing.
AS_KNOWN = """
SELECT %(client)s::uuid AS client_id, %(plan_input)s::bigint AS monthly_input_tokens,
       %(plan_output)s::bigint AS monthly_output_tokens, %(plan_day)s::bigint AS daily_tokens
"""
_NOTHING = "SELECT 0::bigint AS input"


@cache
def balance_on(caller: str, terms: str) -> Statement:
    """Gives a :class:`Balance` for the same two queries as an admission; no row where one of them gives none."""
    statement = f"""
SELECT l.stopped, l.input_cap, l.output_cap, l.day_cap, q.input,
       m.day, COALESCE(m.input_used, 0), COALESCE(m.input_reserved, 0), COALESCE(m.output_used, 0),
       COALESCE(m.output_reserved, 0), COALESCE(m.day_used, 0), COALESCE(m.day_reserved, 0),
       ({DAILY_LIMIT_IS_NOTED})
FROM ({caller}) AS c CROSS JOIN LATERAL ({LIMITS}) AS l CROSS JOIN LATERAL ({terms}) AS q
LEFT JOIN usage_monthlyusage AS m ON m.user_id = %(user)s AND m.period = %(period)s
"""  # noqa: S608 - built from constants of this project
    return Statement(" ".join(statement.split()))


def balance(*, user_id: UUID, plan: PlanCaps, now: datetime) -> Balance:
    """That of a person now, by the numbers of their plan."""
    period = Period.of(now)
    values = {"user": user_id, "now": now, "period": period.month, "day": period.day}
    row = balance_on(AS_KNOWN, _NOTHING).row({**values, **plan_values(plan), "client": None})
    assert row is not None
    return Balance(*row)


def remaining_headers(*, month: int | None, day: int | None) -> dict[str, str]:
    """What is left beside a call, as every answer says that comes of asking for it. Tokens; None: no cap."""
    return {
        f"X-Tokens-Remaining-{name}": "unlimited" if left is None else str(max(0, left))
        for name, left in (("Month", month), ("Day", day))
    }


def plan_values(plan: PlanCaps) -> dict[str, Any]:
    return {
        "plan_input": _number(plan.monthly_input),
        "plan_output": _number(plan.monthly_output),
        "plan_day": _number(plan.daily),
    }


def _number(tokens: int | None) -> Int8 | None:
    """Of one type whatever its size, so that the statement is prepared once."""
    return None if tokens is None else Int8(tokens)
