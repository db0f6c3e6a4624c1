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
from config.platform.concurrency.batching import BatchedStatement
from config.platform.db.uuid7 import timed_uuid
from config.platform.periods import Period
from usage.costs import Abandoned, AskedRoute, as_json
from usage.limits import BUDGET_SPENT, LEAST_OUTPUT, LIMITS, PlanCaps
from usage.models import KeyMonth, MonthlyUsage, UsageRecord
from usage.models.failures import NONE as NO_FAILURES
from usage.models.failures import Failures
from usage.refusals import Needs, Reading, check_caps, reserved_for_now

# Another call may end between a refused admission and the query for its reason; then admission is tried again.
TRIES = 5
# A reservation outlives the longest call by this much before the worker settles it.
EXPIRY_MARGIN = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRequest:
    """A call to be admitted: its person, whom it asks first, and the most tokens it may use.

    ``least_output`` is the lowest limit that is of use to it. ``labels`` are the caller's own words for the call, for
    exports.
    """

    user_id: UUID
    session_id: UUID | None
    client_id: UUID
    asked: AskedRoute
    request_id: str
    streamed: bool
    model: str
    input_estimate: int
    output_wanted: int
    least_output: int = LEAST_OUTPUT
    labels: Mapping[str, Any] | None = None
    key_id: UUID | None = None
    # The key's own cap of output a month.
    key_cap: int | None = None

    @property
    def needs(self) -> Needs:
        """The least that the call needs: no output where it makes none, as an embedding."""
        return Needs(
            user_id=self.user_id,
            client_id=self.client_id,
            prompt=self.input_estimate,
            output=self.least_output if self.output_wanted else 0,
            key_id=self.key_id,
            key_cap=self.key_cap,
        )


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
_LEFT = f"l.output_cap - m.output_used - m.output_reserved, {_LEFT_TODAY}"
# The latest totals of the call's key, once those of its person are locked: settlement locks in this order too.
_KEY = """
mine AS MATERIALIZED (
    SELECT FROM usage_monthlyusage WHERE user_id = %(user)s AND period = %(period)s FOR NO KEY UPDATE
),
k AS MATERIALIZED (
    SELECT %(key_cap)s::bigint - n.output_used - n.output_reserved AS room
    FROM mine CROSS JOIN usage_keymonth AS n
    WHERE n.key_id = %(key)s AND n.period = %(period)s FOR NO KEY UPDATE OF n
),"""
_KEPT = """
kept AS (
    UPDATE usage_keymonth AS n
    SET output_reserved = n.output_reserved + granted, output_cap = %(key_cap)s
    FROM admitted WHERE n.key_id = %(key)s AND n.period = %(period)s
),"""


def _admission(*, by_capped_key: bool = False, has_output: bool = True) -> BatchedStatement:
    """Admits a call, or gives no row. Locks the row of its person, and then that of its key.

    What has no output is held to the caps of input and of the day alone.

    Materialized, or else the sums of limits are computed again at each place that names them.
    """
    key, kept, of_key = (_KEY, _KEPT, ", k") if by_capped_key else ("", "", "")
    room = ", k.room" if by_capped_key else ""
    left = f"{_LEFT}{room}"
    # Without any cap what is left is NULL.
    grant, enough = f"LEAST(%(wanted)s, {left})", f"(LEAST({left}) < %(least)s) IS NOT TRUE"
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
        day_reserved = {_TODAY_RESERVED} + %(input)s + {grant},
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
        counted_input, input_price, cached_input_price, output_price, cache_write_price, labels, cached_input_percent
    )
    SELECT %(id)s, %(user)s, %(client)s, %(session)s::uuid, %(key)s::uuid, %(period)s, day, %(model)s, %(provider)s,
           %(request)s, %(streamed)s, 'open', %(input)s, granted, 0, 0, 0, 0, '', '', %(now)s, %(expires)s,
           %(counted)s::bigint, %(input_price)s::bigint, %(cached_price)s::bigint, %(output_price)s::bigint,
           %(write_price)s::bigint, %(labels)s::jsonb, %(cached_percent)s
    FROM admitted
)
SELECT granted, left_month, left_day, day_cap FROM admitted
""",  # nosec B608 # noqa: S608 - built from constants of this project
        order=itemgetter("user"),
    )


_ADMIT = _admission()
_ADMIT_KEY = _admission(by_capped_key=True)
_ADMIT_INPUT = _admission(has_output=False)


def reserve(*, request: ReservationRequest, plan: PlanCaps, now: datetime) -> Reservation:
    """Opens a record for a call, or refuses the call without any charge.

    The output limit is lowered to what is left unreserved. Raises ``ModelCallsStopped``, ``BudgetExceeded``,
    ``MonthlyCapExceeded``, ``DailyLimitReached``, or ``CapReserved`` if running calls hold the tokens that are left.
    """
    values = _values(request, now) | plan.values() | {"cached_percent": Int8(plan.cached_percent)}
    admit = _ADMIT if request.output_wanted else _ADMIT_INPUT
    if request.output_wanted and request.key_cap is not None:
        admit, values["key_cap"] = _ADMIT_KEY, Int8(request.key_cap)
    needs, period = request.needs, Period.of(now)
    for _ in range(TRIES):
        if row := admit.row(values):
            return Reservation(values["id"], *row)
        if check_caps(needs, plan=plan, now=now).day is None:
            # A person's first call of the month; at its beginning many people's rows are missing at once.
            first = MonthlyUsage(user_id=request.user_id, period=period.month, day=period.day)
            MonthlyUsage.objects.bulk_create([first], ignore_conflicts=True)
        if request.key_id is not None and request.key_cap is not None:
            of_key = KeyMonth(
                key_id=request.key_id, period=period.month, output_cap=request.key_cap
            )
            KeyMonth.objects.bulk_create([of_key], ignore_conflicts=True)
    raise reserved_for_now(Reading.of(needs, plan=plan, now=now))


def _values(request: ReservationRequest, now: datetime) -> dict[str, Any]:
    period = Period.of(now)
    return {
        "user": request.user_id,
        "now": now,
        "id": timed_uuid(),
        "session": request.session_id,
        "key": request.key_id,
        "client": request.client_id,
        "period": period.month,
        "day": period.day,
        "model": request.model,
        "request": request.request_id,
        "streamed": request.streamed,
        "input": Int8(request.input_estimate),
        "wanted": Int8(request.output_wanted),
        "least": Int8(request.least_output),
        **request.asked.values(),
        "labels": dumps(request.labels) if request.labels else None,
        "expires": now + timedelta(seconds=settings.LLM_MAX_SECONDS) + EXPIRY_MARGIN,
    }


# The new expiry is by the database's clock, the only one that all hosts share: a wrong clock of a host does not let the
# reservation of a running call expire. A locked record is about to be settled, so it is skipped: waiting for it is
# useless, and could deadlock with settling, which also locks several at once.
_CHECKPOINT = """
WITH s AS (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(inputs)s::bigint[], %(outputs)s::bigint[], %(first_bytes)s::timestamptz[],
        %(providers)s::text[], %(counts)s::bigint[], %(input_prices)s::bigint[], %(cached_prices)s::bigint[],
        %(output_prices)s::bigint[], %(write_prices)s::bigint[], %(abandoned)s::jsonb[], %(cached)s::bigint[],
        %(first_outputs)s::timestamptz[], %(failures)s::jsonb[]
    ) AS s(id, input, output, first_byte_at, provider, counted, input_price, cached_price, output_price, write_price,
           abandoned, cached, first_output_at, failures)
),
free AS (
    SELECT r.id FROM usage_usagerecord AS r JOIN s USING (id)
    WHERE r.settled_at IS NULL FOR NO KEY UPDATE OF r SKIP LOCKED
)
UPDATE usage_usagerecord AS r
SET checkpoint_at = now(), checkpoint_input = s.input, checkpoint_output = s.output,
    checkpoint_cached = s.cached, first_byte_at = COALESCE(r.first_byte_at, s.first_byte_at),
    provider = s.provider, counted_input = s.counted, input_price = s.input_price, cached_input_price = s.cached_price,
    output_price = s.output_price, cache_write_price = s.write_price, abandoned = s.abandoned,
    first_output_at = COALESCE(r.first_output_at, s.first_output_at), failures = s.failures,
    expires_at = GREATEST(r.expires_at, now() + make_interval(secs => %(margin)s))
FROM s JOIN free USING (id)
WHERE r.id = s.id AND r.settled_at IS NULL
RETURNING r.id
"""


class SoFar(NamedTuple):
    """The progress of a running call: its usage, its route and the routes that failed.

    The tokens are both None if only its complete answer reports them; of the input, ``cached`` was read from a cache.
    """

    record_id: UUID
    input: int | None
    output: int | None
    first_byte_at: datetime | None
    asked: AskedRoute
    abandoned: tuple[Abandoned, ...] = ()
    cached: int = 0
    first_output_at: datetime | None = None
    failures: Failures = NO_FAILURES


def checkpoint(calls: Sequence[SoFar]) -> set[UUID]:
    """Updates open records and extends their reservations in one statement; returns those that were not locked."""
    if not calls:
        return set()
    prices = [each.asked.prices for each in calls]
    values: dict[str, Any] = {
        "ids": [each.record_id for each in calls],
        "inputs": [each.input for each in calls],
        "outputs": [each.output for each in calls],
        "first_bytes": [each.first_byte_at for each in calls],
        "providers": [each.asked.provider for each in calls],
        "counts": [each.asked.counted_input for each in calls],
        "input_prices": [each.input for each in prices],
        "cached_prices": [each.cached_input for each in prices],
        "output_prices": [each.output for each in prices],
        "write_prices": [each.cache_write for each in prices],
        "abandoned": [as_json(each.abandoned) for each in calls],
        "cached": [each.cached for each in calls],
        "first_outputs": [each.first_output_at for each in calls],
        "failures": [each.failures.as_json() for each in calls],
        "margin": EXPIRY_MARGIN.total_seconds(),
    }
    with connection.cursor() as cursor:
        cursor.execute(_CHECKPOINT, values)
        return {record_id for (record_id,) in cursor.fetchall()}


def begin_background_read(*, record_id: UUID, user_id: UUID, most: int, now: datetime) -> bool:
    """Returns whether a whole answer may be read on without its client: while fewer than ``most`` of this person are.

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
