"""Admission: checks a person's caps for the calendar month and day (UTC), and reserves tokens for a call.

One statement checks and reserves before a call starts; the call is settled exactly once. The reserved totals always
equal the sum of open records, because the same statements write both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from json import dumps
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from psycopg.types.numeric import Int8

from accounts.sessions.revocation import lock_user
from config.db.batching import BatchedStatement
from config.db.uuid7 import timed_uuid
from usage.limits import BUDGET_SPENT, LEAST_OUTPUT, LIMITS, PlanCaps, balance
from usage.models import KeyMonth, MonthlyUsage, UsageRecord
from usage.periods import Period
from usage.refusals import KeyTotals, refusal, reserved_for_now

# Another call may end between a refused admission and the query for its reason; then admission is tried again.
TRIES = 5
# A reservation outlives the longest call by this much before the worker settles it.
EXPIRY_MARGIN = timedelta(seconds=60)


class Prices(NamedTuple):
    """A model's prices, in millionths of a dollar per million tokens; None: unknown.

    Input read from or written to a cache costs as much as other input, unless it has a price of its own.
    """

    input: int | None = None
    cached_input: int | None = None
    output: int | None = None
    cache_write: int | None = None


UNKNOWN = Prices()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call to be admitted: its person, and the most tokens it may use.

    ``counted_input`` is the prompt before the model's factor, where a tokenizer has counted it. ``labels`` are the
    caller's own words for the call, for exports.
    """

    user_id: UUID
    session_id: UUID | None
    client_id: UUID
    provider: str
    request_id: str
    streamed: bool
    model: str
    input_estimate: int
    output_wanted: int
    counted_input: int | None = None
    prices: Prices = UNKNOWN
    labels: Mapping[str, Any] | None = None
    key_id: UUID | None = None
    # The key's own cap of output a month.
    key_cap: int | None = None

    @property
    def least_output(self) -> int:
        """The tokens of output without which the call is useless: none where it makes none, as an embedding."""
        return LEAST_OUTPUT if self.output_wanted else 0


class Reservation(NamedTuple):
    """An open record: its id, its granted output limit, the tokens left before it, and the day's cap (None: no cap)."""

    record_id: UUID
    output_limit: int
    remaining_month: int | None
    remaining_day: int | None
    day_cap: int | None


# The output left for one call. LEAST ignores NULL, which stands for "no cap".
_TODAY_USED = "CASE WHEN m.day >= %(day)s THEN m.day_used ELSE 0 END"
_TODAY_RESERVED = "CASE WHEN m.day >= %(day)s THEN m.day_reserved ELSE 0 END"
_LEFT_TODAY = (
    "l.day_cap - CASE WHEN m.day >= %(day)s THEN m.day_used + m.day_reserved ELSE 0 END - %(input)s"
)
_LEFT = f"LEAST(l.output_cap - m.output_used - m.output_reserved, {_LEFT_TODAY})"
# The latest totals of the call's key, once those of its person are locked: settlement locks in this order too.
_KEY = """
mine AS MATERIALIZED (
    SELECT FROM usage_monthlyusage WHERE user_id = %(user)s AND period = %(period)s FOR NO KEY UPDATE
),
k AS MATERIALIZED (
    SELECT %(key_cap)s::bigint - month.output_used - month.output_reserved AS room
    FROM mine CROSS JOIN usage_keymonth AS month
    WHERE month.key_id = %(key)s AND month.period = %(period)s FOR NO KEY UPDATE OF month
),"""
_KEPT = """
kept AS (
    UPDATE usage_keymonth AS month
    SET output_reserved = month.output_reserved + granted, output_cap = %(key_cap)s
    FROM admitted WHERE month.key_id = %(key)s AND month.period = %(period)s
),"""


def _admission(*, by_capped_key: bool = False, has_output: bool = True) -> BatchedStatement:
    """Admits a call, or gives no row. Locks the row of its person, and then that of its key.

    What has no output is held to the caps of input and of the day alone.

    Materialized, or else the sums of limits are worked out anew at each place that names them.
    """
    key, kept, of_key = (_KEY, _KEPT, ", k") if by_capped_key else ("", "", "")
    room = ", k.room" if by_capped_key else ""
    left = f"LEAST({_LEFT}{room})" if by_capped_key else _LEFT
    grant, enough = (
        f"LEAST(%(wanted)s, {left})",
        f"COALESCE({left}, {LEAST_OUTPUT}) >= {LEAST_OUTPUT}",
    )
    if not has_output:
        grant, enough = "%(wanted)s", f"COALESCE({_LEFT_TODAY}, 0) >= 0"
    return BatchedStatement(
        f"""
WITH l AS MATERIALIZED ({LIMITS}),{key}
admitted AS (
    UPDATE usage_monthlyusage AS m
    SET granted = {grant},
        input_reserved = m.input_reserved + %(input)s,
        output_reserved = m.output_reserved + {grant},
        day_used = {_TODAY_USED},
        day_reserved = ({_TODAY_RESERVED}) + %(input)s + {grant},
        day = GREATEST(m.day, %(day)s),
        input_cap = l.input_cap,
        output_cap = l.output_cap
    FROM l{of_key}
    WHERE m.user_id = %(user)s AND m.period = %(period)s AND NOT l.stopped
      AND (l.input_cap IS NULL OR m.input_used + m.input_reserved + %(input)s <= l.input_cap)
      AND {enough}
      AND NOT {BUDGET_SPENT}
    RETURNING m.granted,
        LEAST(l.input_cap - m.input_used - m.input_reserved + %(input)s,
              l.output_cap - m.output_used - m.output_reserved + m.granted{room}) AS left_month,
        l.day_cap - m.day_used - m.day_reserved + %(input)s + m.granted AS left_day,
        l.day_cap,
        m.day
),{kept}
opened AS (
    INSERT INTO usage_usagerecord (
        id, user_id, client_id, session_id, key_id, period, day, model, provider, request_id, streamed, state,
        reserved_input, reserved_output, input_tokens, cached_input_tokens, output_tokens,
        reasoning_tokens, source, "end", opened_at, expires_at,
        counted_input, input_price, cached_input_price, output_price, cache_write_price, labels
    )
    SELECT %(id)s, %(user)s, %(client)s, %(session)s::uuid, %(key)s::uuid, %(period)s, day, %(model)s, %(provider)s,
           %(request)s, %(streamed)s, 'open', %(input)s, granted, 0, 0, 0, 0, '', '', %(now)s, %(expires)s,
           %(counted)s::bigint, %(input_price)s::bigint, %(cached_price)s::bigint, %(output_price)s::bigint,
           %(write_price)s::bigint, %(labels)s::jsonb
    FROM admitted
)
SELECT granted, left_month, left_day, day_cap FROM admitted
""",  # nosec B608 # noqa: S608 - built from constants of this project
        order=itemgetter("user"),
    )


_ADMIT = _admission()
_ADMIT_KEY = _admission(by_capped_key=True)
_ADMIT_INPUT = _admission(has_output=False)


def reserve(*, asked: Asked, plan: PlanCaps, now: datetime) -> Reservation:
    """Opens a record for a call, or refuses the call without any charge.

    The output limit is lowered to what is left unreserved. Raises ``ModelCallsStopped``, ``BudgetExceeded``,
    ``MonthlyCapExceeded``, ``DailyLimitReached``, or ``CapReserved`` if running calls hold the tokens that are left.
    """
    values = _values(asked, now) | plan.values()
    admit = _ADMIT if asked.output_wanted else _ADMIT_INPUT
    if asked.output_wanted and asked.key_cap is not None:
        admit, values["key_cap"] = _ADMIT_KEY, Int8(asked.key_cap)
    for _ in range(TRIES):
        if row := admit.row(values):
            return Reservation(values["id"], *row)
        _refuse(asked, plan=plan, now=now)
    found = balance(user_id=asked.user_id, client_id=asked.client_id, plan=plan, now=now)
    key, prompt = _totals_of_key(asked.key_id, asked.key_cap, now), asked.input_estimate
    raise reserved_for_now(found, prompt=prompt, now=now, key=key, output=asked.least_output)


def refuse_hopeless(
    *,
    user_id: UUID,
    client_id: UUID,
    plan: PlanCaps,
    least_input: int,
    now: datetime,
    output: int = LEAST_OUTPUT,
    key_id: UUID | None = None,
    key_cap: int | None = None,
) -> None:
    """Refuses, by one query, a call that is stopped or cannot fit with the least that its prompt may be.

    For prompts that take long to count; what passes here is admitted or refused by :func:`reserve`. A key with a cap
    of its own, where it is given, takes another query.
    """
    found = balance(user_id=user_id, client_id=client_id, plan=plan, now=now)
    key = _totals_of_key(key_id, key_cap, now)
    if refused := refusal(
        found, user_id=user_id, prompt=least_input, now=now, key=key, output=output
    ):
        raise refused


def _refuse(asked: Asked, *, plan: PlanCaps, now: datetime) -> None:
    """Raises the reason of a refused admission; returns if it does not hold any more."""
    found = balance(user_id=asked.user_id, client_id=asked.client_id, plan=plan, now=now)
    if found.day is None and not found.stopped and not found.budget_spent:
        # A person's first call of the month; at its beginning many people's rows are missing at once.
        period = Period.of(now)
        first = MonthlyUsage(user_id=asked.user_id, period=period.month, day=period.day)
        MonthlyUsage.objects.bulk_create([first], ignore_conflicts=True)
        return
    key, prompt = _totals_of_key(asked.key_id, asked.key_cap, now), asked.input_estimate
    refused = refusal(
        found,
        user_id=asked.user_id,
        prompt=prompt,
        now=now,
        key=key,
        output=asked.least_output,
    )
    if refused:
        raise refused


def _totals_of_key(key_id: UUID | None, cap: int | None, now: datetime) -> KeyTotals | None:
    """The month of a key that has a cap, which begins with this query."""
    if key_id is None or cap is None:
        return None
    month, _ = KeyMonth.objects.get_or_create(
        key_id=key_id, period=Period.of(now).month, defaults={"output_cap": cap}
    )
    return KeyTotals(cap, month.output_used, month.output_reserved)


def _int8(number: int | None) -> Int8 | None:
    """One type for all numbers: the statement is prepared once for each combination of types."""
    return None if number is None else Int8(number)


def _values(asked: Asked, now: datetime) -> dict[str, Any]:
    period = Period.of(now)
    return {
        "user": asked.user_id,
        "now": now,
        "id": timed_uuid(),
        "session": asked.session_id,
        "key": asked.key_id,
        "client": asked.client_id,
        "period": period.month,
        "day": period.day,
        "model": asked.model,
        "provider": asked.provider,
        "request": asked.request_id,
        "streamed": asked.streamed,
        "input": Int8(asked.input_estimate),
        "wanted": Int8(asked.output_wanted),
        "counted": _int8(asked.counted_input),
        "input_price": _int8(asked.prices.input),
        "cached_price": _int8(asked.prices.cached_input),
        "output_price": _int8(asked.prices.output),
        "write_price": _int8(asked.prices.cache_write),
        "labels": dumps(asked.labels) if asked.labels else None,
        "expires": now + timedelta(seconds=settings.LLM_MAX_SECONDS) + EXPIRY_MARGIN,
    }


# The new expiry is by the database's clock, the only one that all hosts share: a wrong clock of a host does not let the
# reservation of a running call expire. A locked record is about to be settled, so it is skipped: waiting for it is
# useless, and could deadlock with settling, which also locks several at once.
_CHECKPOINT = """
WITH s AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(inputs)s::bigint[], %(outputs)s::bigint[], %(first_bytes)s::timestamptz[])
        AS s(id, input, output, first_byte_at)
),
free AS (
    SELECT r.id FROM usage_usagerecord AS r JOIN s USING (id)
    WHERE r.settled_at IS NULL FOR NO KEY UPDATE OF r SKIP LOCKED
)
UPDATE usage_usagerecord AS r
SET checkpoint_at = now(), checkpoint_input = s.input, checkpoint_output = s.output,
    first_byte_at = COALESCE(r.first_byte_at, s.first_byte_at),
    expires_at = GREATEST(r.expires_at, now() + make_interval(secs => %(margin)s))
FROM s JOIN free USING (id)
WHERE r.id = s.id AND r.settled_at IS NULL
RETURNING r.id
"""


class SoFar(NamedTuple):
    """The tokens that a running call has used so far; both None if only its complete answer reports them."""

    record_id: UUID
    input: int | None
    output: int | None
    first_byte_at: datetime | None


def checkpoint(calls: Sequence[SoFar]) -> set[UUID]:
    """Updates open records and extends their reservations in one statement; returns those that were not locked."""
    if not calls:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            _CHECKPOINT,
            {
                "ids": [each.record_id for each in calls],
                "inputs": [each.input for each in calls],
                "outputs": [each.output for each in calls],
                "first_bytes": [each.first_byte_at for each in calls],
                "margin": EXPIRY_MARGIN.total_seconds(),
            },
        )
        return {record_id for (record_id,) in cursor.fetchall()}


def begin_background_read(*, record_id: UUID, user_id: UUID, most: int, now: datetime) -> bool:
    """Whether a whole answer may be read on without its client: while fewer than ``most`` of this person are.

    Its place is free once it settles, or once its reservation expires because its process died. Raises
    ``User.DoesNotExist``.
    """
    with transaction.atomic():
        # Those of a person are counted one after another, also by processes that notice at the same time.
        lock_user(user_id)
        running = UsageRecord.objects.open().filter(user_id=user_id, expires_at__gt=now)
        if running.filter(client_left_at__isnull=False).count() >= most:
            return False
        return bool(running.filter(pk=record_id).update(client_left_at=now))
