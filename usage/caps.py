"""Caps: money, per person, per calendar month and day (UTC).

A call reserves before it starts, in one statement that is both check and reservation, and settles
exactly once. What is reserved is always the sum of open records, because the same statements write both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from psycopg.types.numeric import Int4, Int8

from config.db.uuid7 import timed_uuid
from config.statements import Statement
from licensing.callers import WHO_WORKS
from usage.balance import AS_KNOWN, LIMITS, Balance, PlanCaps, balance_on, plan_values
from usage.periods import Period
from usage.refusals import LEAST_OUTPUT, RESERVED_RETRY, CapReserved, refusal

# Between a refused admission and the look at why, room can have come free; then it is tried again.
TRIES = 5
# A reservation outlives the longest call by this much before the worker settles it.
EXPIRY_MARGIN = timedelta(seconds=60)


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


@cache
def _admission(caller: str, terms: str) -> Statement:
    """Admits a call, or gives no row; the columns of the terms follow its own. Locks one row, of its person."""
    # Materialized, or else the sums of limits and terms are worked out anew at each place that names them.
    statement = f"""
WITH c AS MATERIALIZED ({caller}),
l AS MATERIALIZED (SELECT limits.* FROM c CROSS JOIN LATERAL ({LIMITS}) AS limits),
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
        **plan_values(plan),
        "client": asked.client_id,
        "model": asked.model,
        "input": Int8(asked.input_estimate),
        "wanted": Int8(asked.output_wanted),
    }
    row = _admitted(AS_KNOWN, _AS_ASKED, values, now=now)
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


def _admitted(
    caller: str, terms: str, values: dict[str, Any], *, now: datetime
) -> tuple[Any, ...] | None:
    """The row of an admission, tried again where there was room after all; None where there is nobody or nothing."""
    for _ in range(TRIES):
        if row := _admission(caller, terms).row(values):
            return row
        found = balance_on(caller, terms).row(values)
        if found is None:
            return None
        balance = Balance(*found)
        if balance.day is None and not balance.stopped:
            _first_of_month(caller).row(values)
        elif refused := refusal(balance, user_id=values["user"], now=now):
            try:
                raise refused
            finally:
                # It holds on to where it was raised, and so to itself.
                del refused
    raise CapReserved(now=now, until=now + RESERVED_RETRY)


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
