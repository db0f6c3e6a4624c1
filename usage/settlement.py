"""Settling: an open record becomes what the call did cost, exactly once, and the totals follow at once."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from usage.models import UsageRecord

_SETTLE = """
WITH settled AS (
    UPDATE usage_usagerecord
    SET state = 'settled', input_tokens = %(input)s, cached_input_tokens = %(cached)s,
        output_tokens = %(output)s, reasoning_tokens = %(reasoning)s,
        source = %(source)s, "end" = %(end)s, settled_at = %(now)s
    WHERE id = %(id)s AND state = 'open'
    RETURNING user_id, period, day, reserved_input, reserved_output, input_tokens, output_tokens
)
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
"""
SWEEP_SIZE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Tokens of one call. ``input`` includes ``cached_input`` and ``output`` includes ``reasoning``."""

    input: int = 0
    cached_input: int = 0
    output: int = 0
    reasoning: int = 0


def settle(
    *,
    record_id: UUID,
    spent: Spent,
    source: UsageRecord.Source,
    end: UsageRecord.End,
    now: datetime,
) -> bool:
    """Settles a record; False where it had been settled before, which changes nothing."""
    with connection.cursor() as cursor:
        cursor.execute(
            _SETTLE,
            {
                "id": record_id,
                "input": spent.input,
                "cached": spent.cached_input,
                "output": spent.output,
                "reasoning": spent.reasoning,
                "source": source,
                "end": end,
                "now": now,
            },
        )
        return bool(cursor.rowcount == 1)


def settle_abandoned(*, now: datetime) -> int:
    """Settles what died with its worker: open records whose reservation has expired. Gives how many.

    Nobody knows what such a call did cost, so it is charged what it may have cost at most and marked as
    an estimate. Rows that another run is settling are left to it.
    """
    settled = 0
    while True:
        with transaction.atomic():
            batch = list(
                UsageRecord.objects.abandoned(at=now)
                .select_for_update(skip_locked=True, no_key=True)
                .order_by("expires_at")
                .values_list("pk", "reserved_input", "reserved_output")[:SWEEP_SIZE]
            )
            for record_id, input_tokens, output_tokens in batch:
                settled += settle(
                    record_id=record_id,
                    spent=Spent(input=input_tokens, output=output_tokens),
                    source=UsageRecord.Source.ESTIMATED,
                    end=UsageRecord.End.CRASHED,
                    now=now,
                )
        if len(batch) < SWEEP_SIZE:
            return settled
