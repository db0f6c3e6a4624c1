"""Rows that processes of a release before write."""

from datetime import datetime
from uuid import UUID

from django.db import connection

from config.platform.db.uuid7 import timed_uuid


def leave_attempt(
    record_id: UUID, provider: str, *, cost: int | None, asked_at: datetime, left_at: datetime
) -> None:
    """Writes an attempt of 10 tokens in and 20 out as release 1f2697d does."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO usage_leftattempt"
            " (id, record_id, provider, input_tokens, output_tokens, cost, asked_at, left_at)"
            " VALUES (%s, %s, %s, 10, 20, %s, %s, %s)",
            [timed_uuid(), record_id, provider, cost, asked_at, left_at],
        )
