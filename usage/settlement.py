"""Settlement: writes the actual tokens of a call to its open record, exactly once, and updates the totals.

The same statement writes whom the call asked at last, its cost, the attempts that failed or were abandoned, and the
alerts of a person who has used 80 % or all of a cap or whose provider reported the implausible; a worker mails them
(``usage.alerts``).
"""

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from psycopg.types.numeric import Int8

from config.platform.concurrency.batching import BatchedStatement
from config.platform.periods import Period
from usage.costs import Abandoned, AskedRoute, Prices, Spent, as_json, int8
from usage.limits import LEAST_OUTPUT, SMALL_PERCENT, SMALL_PROMPT
from usage.models import UsageRecord
from usage.models.failures import NONE as NO_FAILURES
from usage.models.failures import Failures

SHARE_PERCENT = 80
_KEY = """,
kept AS (
    UPDATE usage_keymonth AS month
    SET output_used = month.output_used + s.output_tokens,
        output_reserved = month.output_reserved - s.reserved_output
    FROM settled AS s CROSS JOIN counted
    WHERE month.key_id = s.key_id AND month.period = s.period
    RETURNING month.output_cap - month.output_used - month.output_reserved AS left_key
)"""


def _settlement(*, by_capped_key: bool) -> BatchedStatement:
    """Settles a call. Updates the totals of its person, and then those of its key: admission locks in this order too.

    Finds the open record by its id and ``settled_at``, which a constraint ties to ``state``: with ``state`` PostgreSQL
    might choose the index of open records, which grows with the running calls. A cap counts as used up once not even a
    small prompt fits (usage.limits.small_prompt); a cap of 0 is an operator's refusal and no budget.
    """
    key = _KEY if by_capped_key else ""
    left = "LEAST(left_month, (SELECT left_key FROM kept))" if by_capped_key else "left_month"
    return BatchedStatement(
        f"""
WITH settled AS (
    UPDATE usage_usagerecord
    SET state = 'settled', input_tokens = %(input)s::bigint, cached_input_tokens = %(cached)s::bigint,
        cache_write_tokens = %(written)s, output_tokens = %(output)s, reasoning_tokens = %(reasoning)s,
        source = %(source)s, "end" = %(end)s, settled_at = %(now)s,
        first_byte_at = COALESCE(%(first_byte)s, first_byte_at),
        first_output_at = COALESCE(%(first_output)s, first_output_at), cost = %(cost)s::bigint,
        provider = %(provider)s, counted_input = %(counted)s::bigint, input_price = %(input_price)s::bigint,
        cached_input_price = %(cached_price)s::bigint, output_price = %(output_price)s::bigint,
        cache_write_price = %(write_price)s::bigint, is_implausible = %(reported)s::bigint IS NOT NULL,
        abandoned = COALESCE(%(abandoned)s::jsonb, abandoned),
        failures = COALESCE(%(failures)s::jsonb, failures), error_code = %(error_code)s,
        capped_input = CASE WHEN cached_input_percent < 100
                            THEN %(input)s::bigint - %(cached)s::bigint * (100 - cached_input_percent) / 100 END
    WHERE id = %(id)s AND settled_at IS NULL
    RETURNING id, user_id, key_id, period, day, reserved_input, reserved_output, output_tokens,
        COALESCE(capped_input, input_tokens) AS input_tokens
),
counted AS (
UPDATE usage_monthlyusage AS m
SET input_used = m.input_used + s.input_tokens,
    input_reserved = m.input_reserved - s.reserved_input,
    output_used = m.output_used + s.output_tokens,
    output_reserved = m.output_reserved - s.reserved_output,
    day_used = m.day_used + CASE WHEN m.day = s.day THEN s.input_tokens + s.output_tokens ELSE 0 END,
    day_reserved = m.day_reserved
        - CASE WHEN m.day = s.day THEN s.reserved_input + s.reserved_output ELSE 0 END
FROM settled AS s
WHERE m.user_id = s.user_id AND m.period = s.period
RETURNING m.user_id, m.period, m.input_used, m.input_cap, m.output_used, m.output_cap,
    LEAST(m.input_cap - m.input_used - m.input_reserved,
          m.output_cap - m.output_used - m.output_reserved) AS left_month,
    m.day_used + m.day_reserved AS taken_today
),
noticed AS (
    INSERT INTO usage_alert (kind, user_id, period, used, cap, noticed_at, record_id)
    SELECT d.kind, m.user_id, m.period, d.used, d.cap, %(now)s, NULL
    FROM counted AS m CROSS JOIN LATERAL (
        VALUES ('input', m.input_used, m.input_cap, m.input_cap * {SHARE_PERCENT} / 100.0),
               ('output', m.output_used, m.output_cap, m.output_cap * {SHARE_PERCENT} / 100.0),
               ('input_all', m.input_used, m.input_cap,
                m.input_cap + 1 - GREATEST(LEAST({SMALL_PROMPT}, m.input_cap * {SMALL_PERCENT} / 100), 1)),
               ('output_all', m.output_used, m.output_cap, m.output_cap - {LEAST_OUTPUT - 1})
    ) AS d (kind, used, cap, enough)
    WHERE d.cap > 0 AND d.used >= d.enough
    UNION ALL
    SELECT 'report', user_id, %(today)s::date, %(reported)s::bigint, %(plausible)s::bigint, %(now)s, id
    FROM settled WHERE %(reported)s::bigint IS NOT NULL
    ON CONFLICT DO NOTHING
){key}
SELECT {left}, taken_today FROM counted
""",  # nosec B608 # noqa: S608 - built from constants of this project
        order=itemgetter("user"),
    )


_SETTLE = _settlement(by_capped_key=False)
_SETTLE_KEY = _settlement(by_capped_key=True)
SWEEP_SIZE = 500


class After(NamedTuple):
    """A person's tokens after a settlement: left in the month (None: no cap), and used or reserved in the day."""

    remaining_month: int | None
    taken_today: int


class Excess(NamedTuple):
    """The tokens of an implausible report, and the most that would have been plausible."""

    reported: int
    plausible: int


class Settlement(NamedTuple):
    """The settlement of one call: its usage, the source of that, its end, and its route.

    ``by_capped_key``: whether the call may have had a personal key with a cap of its own.
    """

    record_id: UUID
    user_id: UUID
    spent: Spent
    source: UsageRecord.Source
    end: UsageRecord.End
    asked: AskedRoute
    first_byte_at: datetime | None = None
    by_capped_key: bool = False
    excess: Excess | None = None
    abandoned: Sequence[Abandoned] = ()
    first_output_at: datetime | None = None
    failures: Failures = NO_FAILURES


def settle(settlement: Settlement, *, now: datetime) -> After | None:
    """Settles a person's record; returns None and changes nothing if it had been settled before."""
    spent, asked, failures = settlement.spent, settlement.asked, settlement.failures
    values = {
        "id": settlement.record_id,
        "user": settlement.user_id,
        "input": Int8(spent.input),
        "cached": Int8(spent.cached_input),
        "written": Int8(spent.cache_write),
        "output": Int8(spent.output),
        "reasoning": Int8(spent.reasoning),
        "source": settlement.source.value,
        "end": settlement.end.value,
        "now": now,
        "today": Period.of(now).day,
        "first_byte": settlement.first_byte_at,
        "first_output": settlement.first_output_at,
        "cost": int8(asked.prices.cost(spent)),
        **asked.values(),
        "reported": int8(settlement.excess and settlement.excess.reported),
        "plausible": int8(settlement.excess and settlement.excess.plausible),
        "abandoned": as_json(settlement.abandoned),
        "failures": failures.as_json(),
        "error_code": failures.problem and failures.problem.code,
    }
    row = (_SETTLE_KEY if settlement.by_capped_key else _SETTLE).row(values)
    return After(*row) if row else None


def settle_abandoned(*, now: datetime) -> int:
    """Settles the open records with an expired reservation, whose process has died; returns their number.

    Such a call is charged its last checkpoint, or without one its whole reservation, and marked as an estimate. Each
    is settled separately, so that other calls wait for at most one, and concurrent runs settle each once.
    """
    settled = 0
    while batch := list(
        UsageRecord.objects.abandoned(at=now).order_by("expires_at", "id")[:SWEEP_SIZE]
    ):
        for row in batch:
            input_tokens, output_tokens = row.checkpoint_input, row.checkpoint_output
            settlement = Settlement(
                record_id=row.pk,
                user_id=row.user_id,
                spent=Spent(
                    input=row.reserved_input if input_tokens is None else input_tokens,
                    cached_input=row.checkpoint_cached or 0,
                    output=row.reserved_output if output_tokens is None else output_tokens,
                ),
                source=UsageRecord.Source.ESTIMATED,
                end=UsageRecord.End.CRASHED,
                asked=AskedRoute(row.provider, prices_of(row), row.counted_input),
                by_capped_key=row.key_id is not None,
            )
            settled += settle(settlement, now=now) is not None
    return settled


def prices_of(call: UsageRecord) -> Prices:
    """Returns the prices of the route that a call asked at last."""
    return Prices(
        call.input_price, call.cached_input_price, call.output_price, call.cache_write_price
    )
