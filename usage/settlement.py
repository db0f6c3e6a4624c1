"""Settlement: writes the actual tokens of a call to its open record, exactly once, and updates the totals.

The same statement fixes the cost, and writes the alerts of a person who has used 80 % or all of a cap; a worker mails
them (``usage.alerts``). Before it, a record may move to another route.
"""

from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from psycopg.types.numeric import Int8

from config.db.batching import BatchedStatement
from usage.limits import LEAST_OUTPUT, SMALL_PERCENT, SMALL_PROMPT
from usage.models import LeftAttempt, UsageRecord

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
    might choose the index of open records, which grows with the running calls.
    """
    key = _KEY if by_capped_key else ""
    left = "LEAST(left_month, (SELECT left_key FROM kept))" if by_capped_key else "left_month"
    return BatchedStatement(
        f"""
WITH settled AS (
    UPDATE usage_usagerecord
    SET state = 'settled', input_tokens = %(input)s, cached_input_tokens = %(cached)s,
        cache_write_tokens = %(written)s, output_tokens = %(output)s, reasoning_tokens = %(reasoning)s,
        source = %(source)s, "end" = %(end)s, settled_at = %(now)s,
        first_byte_at = COALESCE(%(first_byte)s, first_byte_at),
        -- Rounded up, so that no call is free. NULL without prices.
        cost = ceil((
            (%(input)s::bigint - %(cached)s::bigint - %(written)s::bigint) * input_price::numeric
            + %(cached)s::bigint * COALESCE(cached_input_price, input_price)::numeric
            + %(written)s::bigint * COALESCE(cache_write_price, input_price)::numeric
            + %(output)s::bigint * output_price::numeric
        ) / 1000000)::bigint
    WHERE id = %(id)s AND settled_at IS NULL
    RETURNING user_id, key_id, period, day, reserved_input, reserved_output, input_tokens, output_tokens
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
    INSERT INTO usage_alert (kind, user_id, period, used, cap, noticed_at)
    SELECT d.kind, m.user_id, m.period, d.used, d.cap, %(now)s
    FROM counted AS m CROSS JOIN LATERAL (
        VALUES ('input', m.input_used, m.input_cap, m.input_cap * {SHARE_PERCENT} / 100.0),
               ('output', m.output_used, m.output_cap, m.output_cap * {SHARE_PERCENT} / 100.0),
               -- With less left, not even a small prompt fits (usage.limits.small_prompt).
               ('input_all', m.input_used, m.input_cap,
                m.input_cap + 1 - GREATEST(LEAST({SMALL_PROMPT}, m.input_cap * {SMALL_PERCENT} / 100), 1)),
               ('output_all', m.output_used, m.output_cap, m.output_cap - {LEAST_OUTPUT - 1})
    ) AS d (kind, used, cap, enough)
    -- A cap of 0 is an operator's refusal and no budget.
    WHERE d.cap > 0 AND d.used >= d.enough
    ON CONFLICT DO NOTHING
){key}
SELECT {left}, taken_today FROM counted
""",  # nosec B608 # noqa: S608 - built from constants of this project
        order=itemgetter("user"),
    )


_SETTLE = _settlement(by_capped_key=False)
_SETTLE_KEY = _settlement(by_capped_key=True)
SWEEP_SIZE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Tokens of one call. ``input`` includes ``cached_input``, read from a cache, and ``cache_write``, written to one;
    ``output`` includes ``reasoning``."""

    input: int = 0
    cached_input: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0


class After(NamedTuple):
    """A person's tokens after a settlement: left in the month (None: no cap), and used or reserved in the day."""

    remaining_month: int | None
    taken_today: int


def settle(
    *,
    record_id: UUID,
    user_id: UUID,
    spent: Spent,
    source: UsageRecord.Source,
    end: UsageRecord.End,
    now: datetime,
    first_byte_at: datetime | None = None,
    by_capped_key: bool = False,
) -> After | None:
    """Settles a person's record; returns None and changes nothing if it had been settled before.

    ``by_capped_key``: whether the call may have had a personal key with a cap of its own.
    """
    values = {
        "id": record_id,
        "user": user_id,
        "input": Int8(spent.input),
        "cached": Int8(spent.cached_input),
        "written": Int8(spent.cache_write),
        "output": Int8(spent.output),
        "reasoning": Int8(spent.reasoning),
        "source": source.value,
        "end": end.value,
        "now": now,
        "first_byte": first_byte_at,
    }
    row = (_SETTLE_KEY if by_capped_key else _SETTLE).row(values)
    return After(*row) if row else None


# Of input, cached input, output and what is written to a cache, in millionths of a dollar per million tokens.
Prices = tuple[int | None, int | None, int | None, int | None]
_PRICE_COLUMNS = ("input_price", "cached_input_price", "output_price", "cache_write_price")


class NextRoute(NamedTuple):
    """Whom a call asks next: a provider, its prices, and the prompt as counted for its route."""

    provider: str
    prices: Prices
    counted_input: int | None


class Left(NamedTuple):
    """An attempt that was left without an answer, with the tokens that the provider may bill."""

    provider: str
    prices: Prices
    input: int
    output: int
    asked_at: datetime


def move_on(*, record_id: UUID, to: NextRoute, left: Left | None, now: datetime) -> bool:
    """Moves an open record to the next route; returns False if it has been settled.

    The record says who is asked while the call runs, so that it is right as well if this process dies.
    """
    with transaction.atomic():
        moved = (
            UsageRecord.objects.open()
            .filter(pk=record_id)
            .update(
                provider=to.provider,
                counted_input=to.counted_input,
                **dict(zip(_PRICE_COLUMNS, to.prices, strict=True)),
            )
        )
        if moved and left is not None:
            LeftAttempt.objects.create(
                record_id=record_id,
                provider=left.provider,
                input_tokens=left.input,
                output_tokens=left.output,
                cost=_cost(left),
                asked_at=left.asked_at,
                left_at=now,
            )
    return bool(moved)


def _cost(left: Left) -> int | None:
    """The most that it may cost, rounded up: the provider may have written its prompt to a cache."""
    of_input, _, of_output, of_written = left.prices
    if of_input is None or of_output is None:
        return None
    of_prompt = max(of_input, of_written or 0)
    return -(-(left.input * of_prompt + left.output * of_output) // 1_000_000)


def settle_abandoned(*, now: datetime) -> int:
    """Settles the open records with an expired reservation, whose process has died; returns their number.

    Such a call is charged its last checkpoint, or without one its whole reservation, and marked as an estimate. Each
    is settled separately, so that other calls wait for one at most, and concurrent runs settle each once.
    """
    settled = 0
    while batch := list(
        UsageRecord.objects.abandoned(at=now)
        .order_by("expires_at", "id")
        .values_list(
            "pk",
            "user_id",
            "key_id",
            "checkpoint_input",
            "checkpoint_output",
            "reserved_input",
            "reserved_output",
        )[:SWEEP_SIZE]
    ):
        for (
            record_id,
            user_id,
            key_id,
            input_tokens,
            output_tokens,
            most_input,
            most_output,
        ) in batch:
            after = settle(
                record_id=record_id,
                user_id=user_id,
                spent=Spent(
                    input=most_input if input_tokens is None else input_tokens,
                    output=most_output if output_tokens is None else output_tokens,
                ),
                source=UsageRecord.Source.ESTIMATED,
                end=UsageRecord.End.CRASHED,
                now=now,
                by_capped_key=key_id is not None,
            )
            settled += after is not None
    return settled
