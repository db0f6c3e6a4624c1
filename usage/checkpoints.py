"""Checkpoints: what running calls have cost so far, in case their process dies with them."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from usage.caps import EXPIRY_MARGIN

# Sixty seconds from now by the database's clock, the only one that all hosts share: the reservation of a call
# that is known to run does not expire because a host's clock is wrong. Open is what has not been settled, as in
# settling. What is locked is about to be settled: waiting for it would be in vain, and since settling locks several
# at once as well, without end.
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
    """What a running call has cost so far, in tokens; both None where only its whole answer tells."""

    record_id: UUID
    input: int | None
    output: int | None
    first_byte_at: datetime | None


def checkpoint(calls: Sequence[SoFar]) -> set[UUID]:
    """Notes this of open records, all in one statement, and that they run. Gives which were open and free."""
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
