"""Caps: money, per person, per calendar month and day (UTC).

A call reserves before it starts, in one statement that is both check and reservation, and settles
exactly once. What is reserved is always the sum of open records, because the same statements write both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from psycopg.types.numeric import Int4, Int8

from config.ids import timed_uuid
from config.problems import Problem, RefusedUntil
from config.statements import Statement
from licensing.callers import WHO_WORKS, Caller
from usage.alerts import DAILY_LIMIT_IS_NOTED, note_daily_limit
from usage.limits import Caps, limits_of
from usage.periods import Period
from usage.stops import ModelCallsStopped

# Less than this many output tokens left is none left: an answer that is cut at once helps nobody.
LEAST_OUTPUT = 16
# A daily limit is reached when not even a small prompt fits beside that: one of this many tokens, as calls are
# estimated, or of this percent of the limit where that is fewer.
SMALL_PROMPT = 1_000
SMALL_PERCENT = 1
# How long a caller waits when only running calls hold what is left.
RESERVED_RETRY = timedelta(seconds=5)
# Between a refused admission and the look at why, room can have come free; then it is tried again.
TRIES = 5
# A reservation outlives the longest call by this much before the worker settles it.
EXPIRY_MARGIN = timedelta(seconds=60)


class MonthlyCapExceeded(RefusedUntil):
    code = "monthly_cap_exceeded"
    title = "Monthly cap reached"
    default_detail = "This month's tokens are used up. They start again on the first of next month."


class DailyLimitReached(RefusedUntil):
    code = "daily_limit_reached"
    title = "Daily limit reached"
    default_detail = "Today's tokens are used up. They start again at midnight UTC."


class CapReserved(RefusedUntil):
    code = "cap_reserved"
    title = "Waiting for running calls"
    default_detail = "Calls that are still running hold what is left. Please try again in a moment."


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Whose call it is, and how it is made."""

    user_id: UUID
    session_id: UUID | None
    provider: str
    request_id: str
    streamed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Asking):
    """A call, and what it wants to spend at most. Tokens."""

    client_id: UUID
    model: str
    input_estimate: int
    output_wanted: int


@dataclass(frozen=True, slots=True)
class Terms:
    """What a call wants to spend where rows of a higher floor say so, read by the statement that admits it.

    ``query`` gives at most one row of ``model``, ``input`` and ``wanted`` (tokens) and whatever else is to be given
    back; no row, no admission. It may ask for columns of ``c``, which is ``WHO_WORKS``. ``values`` are its parameters,
    whose names must be none of ours.
    """

    query: str
    values: Mapping[str, Any]


class Reservation(NamedTuple):
    """An open record: its id, the output limit it was given, and what is left beside it (None: no cap)."""

    record_id: UUID
    output_limit: int
    remaining_month: int | None
    remaining_day: int | None


class Standing(NamedTuple):
    """A person's limits, the tokens of a prompt, and the running totals of the month, all nothing where it has no row.

    Those of the day count for ``day``. ``is_noted``: operators hear of that day's limit already.
    """

    stopped: bool
    input_cap: int | None
    output_cap: int | None
    day_cap: int | None
    input_estimate: int
    day: date | None
    input_used: int
    input_reserved: int
    output_used: int
    output_reserved: int
    day_used: int
    day_reserved: int
    is_noted: bool

    @property
    def caps(self) -> Caps:
        return Caps(self.input_cap, self.output_cap, self.day_cap)

    def of_day(self, day: date) -> tuple[int, int]:
        """Used and reserved of that day."""
        is_it = self.day is not None and self.day >= day
        return (self.day_used, self.day_reserved) if is_it else (0, 0)


# Limits of now of ``c``, who calls, and whether an operator has stopped their calls.
_LIMITS = limits_of(
    user="%(user)s",
    plan_input="c.monthly_input_tokens",
    plan_output="c.monthly_output_tokens",
    plan_day="c.daily_tokens",
)

# What is left of output for one call: LEAST ignores NULL, which is how "no cap" drops out.
_TODAY_USED = "CASE WHEN m.day >= %(day)s THEN m.day_used ELSE 0 END"
_TODAY_RESERVED = "CASE WHEN m.day >= %(day)s THEN m.day_reserved ELSE 0 END"
_LEFT = """LEAST(
    l.output_cap - m.output_used - m.output_reserved,
    l.day_cap - CASE WHEN m.day >= %(day)s THEN m.day_used + m.day_reserved ELSE 0 END - q.input
)"""
_GRANT = f"LEAST(q.wanted, {_LEFT})"
_AS_ASKED = (
    "SELECT %(model)s::text AS model, %(input)s::bigint AS input, %(wanted)s::bigint AS wanted"
)
_NOTHING = "SELECT 0::bigint AS input"
_AS_KNOWN = """
SELECT %(client)s::uuid AS client_id, %(plan_input)s::bigint AS monthly_input_tokens,
       %(plan_output)s::bigint AS monthly_output_tokens, %(plan_day)s::bigint AS daily_tokens
"""


@cache
def _admission(caller: str, terms: str) -> Statement:
    """Admits a call, or gives no row; the columns of the terms follow its own. Locks one row, of its person."""
    # Materialized, or else the sums of limits and terms are worked out anew at each place that names them.
    statement = f"""
WITH c AS MATERIALIZED ({caller}),
l AS MATERIALIZED (SELECT limits.* FROM c CROSS JOIN LATERAL ({_LIMITS}) AS limits),
q AS MATERIALIZED (SELECT terms.* FROM c CROSS JOIN LATERAL ({terms}) AS terms),
admitted AS (
    UPDATE usage_monthlyusage AS m
    SET granted = {_GRANT},
        input_reserved = m.input_reserved + q.input,
        output_reserved = m.output_reserved + {_GRANT},
        day_used = {_TODAY_USED},
        day_reserved = ({_TODAY_RESERVED}) + q.input + {_GRANT},
        day = GREATEST(m.day, %(day)s),
        input_cap = l.input_cap,
        output_cap = l.output_cap
    FROM c, l, q
    WHERE m.user_id = %(user)s AND m.period = %(period)s AND NOT l.stopped
      AND (l.input_cap IS NULL OR m.input_used + m.input_reserved + q.input <= l.input_cap)
      AND COALESCE({_LEFT}, {LEAST_OUTPUT}) >= {LEAST_OUTPUT}
    RETURNING m.granted,
        LEAST(l.input_cap - m.input_used - m.input_reserved,
              l.output_cap - m.output_used - m.output_reserved) AS left_month,
        l.day_cap - m.day_used - m.day_reserved AS left_day,
        m.day, c.client_id, q.*
),
opened AS (
    INSERT INTO usage_usagerecord (
        id, user_id, client_id, session_id, period, day, model, provider, request_id, streamed, state,
        reserved_input, reserved_output, input_tokens, cached_input_tokens, output_tokens,
        reasoning_tokens, source, "end", opened_at, expires_at
    )
    SELECT %(id)s, %(user)s, client_id, %(session)s::uuid, %(period)s, day, model, %(provider)s,
           %(request)s, %(streamed)s, 'open', input, granted, 0, 0, 0, 0, '', '', %(now)s, %(expires)s
    FROM admitted
)
SELECT * FROM admitted
"""  # noqa: S608 - built from constants of this project
    return Statement(" ".join(statement.split()), order=itemgetter("user"))


@cache
def _standing(caller: str, terms: str) -> Statement:
    """What an admission went by, in the order of :class:`Standing`, or no row where there was nobody or nothing."""
    statement = f"""
SELECT l.stopped, l.input_cap, l.output_cap, l.day_cap, q.input,
       m.day, COALESCE(m.input_used, 0), COALESCE(m.input_reserved, 0), COALESCE(m.output_used, 0),
       COALESCE(m.output_reserved, 0), COALESCE(m.day_used, 0), COALESCE(m.day_reserved, 0),
       ({DAILY_LIMIT_IS_NOTED})
FROM ({caller}) AS c CROSS JOIN LATERAL ({_LIMITS}) AS l CROSS JOIN LATERAL ({terms}) AS q
LEFT JOIN usage_monthlyusage AS m ON m.user_id = %(user)s AND m.period = %(period)s
"""  # noqa: S608 - built from constants of this project
    return Statement(" ".join(statement.split()))


@cache
def _first_of_month(caller: str) -> Statement:
    """Makes the row that a person's first call of a month finds missing, at whose beginning that is everybody's."""
    statement = f"""
INSERT INTO usage_monthlyusage (
    user_id, period, day, input_used, input_reserved, output_used, output_reserved, day_used, day_reserved, granted
)
SELECT %(user)s, %(period)s, %(day)s, 0, 0, 0, 0, 0, 0, 0 FROM ({caller}) AS c
ON CONFLICT (user_id, period) DO NOTHING RETURNING 1
"""  # noqa: S608 - as above
    return Statement(" ".join(statement.split()), order=itemgetter("user"))


def reserve(*, asked: Asked, plan: PlanCaps, now: datetime) -> Reservation:
    """Opens a record for a call, or refuses it at no cost.

    The output limit is lowered to what is left unreserved. Raises ``ModelCallsStopped``, ``MonthlyCapExceeded``,
    ``DailyLimitReached``, or ``CapReserved`` where only calls still running hold what is left.
    """
    values = _values(asked, now) | {
        **_plan_values(plan),
        "client": asked.client_id,
        "model": asked.model,
        "input": Int8(asked.input_estimate),
        "wanted": Int8(asked.output_wanted),
    }
    row = _admitted(_AS_KNOWN, _AS_ASKED, values, now=now)
    assert row is not None
    return Reservation(values["id"], *row[:3])


def reserve_on(
    terms: Terms, *, asking: Asking, epoch: int, now: datetime
) -> tuple[Reservation, tuple[Any, ...]] | None:
    """Opens a record for a call of whoever works, and whose terms are read, in passing; with the row of the terms.

    Raises as :func:`reserve` does. None where nobody works, or the terms give no row: whoever asks who calls, and reads
    the terms, is told why.
    """
    values = {**terms.values, **_values(asking, now), "epoch": Int4(epoch)}
    row = _admitted(WHO_WORKS, terms.query, values, now=now)
    return (Reservation(values["id"], *row[:3]), row[5:]) if row else None


def standing(*, user_id: UUID, plan: PlanCaps, now: datetime) -> Standing:
    """Where a person stands now who asks for nothing."""
    period = Period.of(now)
    values = {"user": user_id, "now": now, "period": period.month, "day": period.day}
    row = _standing(_AS_KNOWN, _NOTHING).row({**values, **_plan_values(plan), "client": None})
    assert row is not None
    return Standing(*row)


def remaining_headers(*, month: int | None, day: int | None) -> dict[str, str]:
    """What is left beside a call, as every answer says that comes of asking for it. Tokens; None: no cap."""
    return {
        f"X-Tokens-Remaining-{name}": "unlimited" if left is None else str(max(0, left))
        for name, left in (("Month", month), ("Day", day))
    }


def _admitted(
    caller: str, terms: str, values: dict[str, Any], *, now: datetime
) -> tuple[Any, ...] | None:
    """The row of an admission, tried again where there was room after all; None where there is nobody or nothing."""
    for _ in range(TRIES):
        if row := _admission(caller, terms).row(values):
            return row
        found = _standing(caller, terms).row(values)
        if found is None:
            return None
        stands = Standing(*found)
        if stands.day is None and not stands.stopped:
            _first_of_month(caller).row(values)
        elif refusal := _refusal(stands, user_id=values["user"], now=now):
            try:
                raise refusal
            finally:
                # It holds on to where it was raised, and so to itself.
                del refusal
    raise CapReserved(now=now, until=now + RESERVED_RETRY)


def _refusal(stands: Standing, *, user_id: UUID, now: datetime) -> Problem | None:
    """Why there was no room; None where there is some by now."""
    if stands.stopped:
        return ModelCallsStopped()
    period, asked = Period.of(now), stands.input_estimate
    shares = (
        _Share("input", stands.input_cap, stands.input_used, stands.input_reserved, asked),
        _Share(
            "output",
            stands.output_cap,
            stands.output_used,
            stands.output_reserved,
            LEAST_OUTPUT,
        ),
        _Share(None, stands.day_cap, *stands.of_day(period.day), asked + LEAST_OUTPUT),
    )
    lefts = [share.left for share in shares]
    headers = remaining_headers(
        month=min((left for left in lefts[:2] if left is not None), default=None), day=lefts[2]
    )
    for share in shares:
        if share.is_spent:
            if share.dimension is None and not stands.is_noted:
                share.note(user_id, period=period, now=now)
            return share.refusal(period=period, headers=headers, now=now)
    if any(share.is_full for share in shares):
        return CapReserved(now=now, until=now + RESERVED_RETRY, headers=headers)
    return None


class _Share(NamedTuple):
    """A cap (None: no cap) beside what is spent and held of it, and what a call wants at least."""

    dimension: str | None
    cap: int | None
    used: int
    reserved: int
    wanted: int

    @property
    def left(self) -> int | None:
        return None if self.cap is None else self.cap - self.used - self.reserved

    @property
    def is_full(self) -> bool:
        return self.left is not None and self.left < self.wanted

    @property
    def is_spent(self) -> bool:
        """Whether waiting for running calls would not help."""
        return self.cap is not None and self.used + self.wanted > self.cap

    def note(self, user_id: UUID, *, period: Period, now: datetime) -> None:
        """Operators hear of a daily limit that is reached, not of a single call that is too large for what is left.

        A limit in which no small prompt ever fits is a word of an operator and is not reached by anybody.
        """
        if self.cap is None:
            return
        least = LEAST_OUTPUT + min(SMALL_PROMPT, self.cap * SMALL_PERCENT // 100)
        if self.cap - self.used < least <= self.cap:
            note_daily_limit(user_id=user_id, day=period.day, used=self.used, cap=self.cap, now=now)

    def refusal(self, *, period: Period, headers: dict[str, str], now: datetime) -> RefusedUntil:
        """Until the next month of a dimension, or the next day: waiting for running calls would not help."""
        detail = self._sentence()
        headers = {"x-should-retry": "false", **headers}
        numbers: dict[str, Any] = {
            "cap": self.cap,
            "used": self.used,
            "reserved": self.reserved,
            "requested": self.wanted,
            "remaining": max(0, self.left or 0),
        }
        if self.dimension is None:
            return DailyLimitReached(
                detail, now=now, until=period.next_day, headers=headers, **numbers
            )
        numbers["dimension"] = self.dimension
        return MonthlyCapExceeded(
            detail, now=now, until=period.next_month, headers=headers, **numbers
        )

    def _sentence(self) -> str | None:
        """What a person is told; None where everything is used up, which the problem itself says."""
        assert self.cap is not None
        if self.wanted > self.cap:
            return f"This call may need {self.wanted:,} tokens, more than the whole limit of {self.cap:,}."
        if self.cap - self.used < LEAST_OUTPUT:
            return None
        whose = f"this month's {self.dimension}" if self.dimension else "today's"
        return (
            f"This call may need {self.wanted:,} tokens, and {max(0, self.left or 0):,} of {whose} tokens are left. "
            "A shorter one may still fit."
        )


def _values(asking: Asking, now: datetime) -> dict[str, Any]:
    period = Period.of(now)
    return {
        "user": asking.user_id,
        "now": now,
        "id": timed_uuid(),
        "session": asking.session_id,
        "period": period.month,
        "day": period.day,
        "provider": asking.provider,
        "request": asking.request_id,
        "streamed": asking.streamed,
        "expires": now + timedelta(seconds=settings.LLM_MAX_SECONDS) + EXPIRY_MARGIN,
    }


def _plan_values(plan: PlanCaps) -> dict[str, Any]:
    return {
        "plan_input": _number(plan.monthly_input),
        "plan_output": _number(plan.monthly_output),
        "plan_day": _number(plan.daily),
    }


def _number(tokens: int | None) -> Int8 | None:
    """Of one type whatever its size, so that the statement is prepared once."""
    return None if tokens is None else Int8(tokens)
