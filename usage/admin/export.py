"""Exports the ledger as a file."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from json import dumps
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from accounts.admin.exports import PAGE, csv_lines, ndjson_lines, pages
from config.api.problems import instant
from config.db.connections import release_connection
from config.money import decimal
from usage.models import LeftAttempt, UsageRecord

COLUMNS = (
    "id",
    "opened_at",
    "settled_at",
    "client_id",
    "user_id",
    "model",
    "provider",
    "request_id",
    "streamed",
    "state",
    "source",
    "end",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost_usd",
    "caller_user",
    "metadata",
    "key_id",
    "cache_write_tokens",
)
_OWN = {"cost_usd", "caller_user", "metadata"}
# A cell that begins so is a formula to a spreadsheet: an operator names models, a caller its requests.
FORMULA = ("=", "+", "-", "@")


def lines(rows: QuerySet[UsageRecord], *, ending: str, page: int = PAGE) -> Iterator[bytes]:
    """Yields the bytes of a file, the newest call first: ``csv`` with a header, or ``ndjson``.

    An attempt that a provider left without an answer is a line of its own behind its call.
    """
    if ending == "csv":
        yield csv_lines([COLUMNS])
    for records in pages(rows, time="opened_at", page=page):
        left = _left(records)
        found = [
            row
            for each in records
            for row in (_row(each), *(_left_row(each, at) for at in left[each.pk]))
        ]
        if ending == "csv":
            yield csv_lines([_cell(row[name]) for name in COLUMNS] for row in found)
        else:
            yield ndjson_lines(found)


def _row(record: UsageRecord) -> dict[str, Any]:
    """A call; its cost is in dollars with six decimals, and None if it has no prices or still runs."""
    labels = record.labels or {}
    return {
        **{name: getattr(record, name) for name in COLUMNS if name not in _OWN},
        "id": str(record.pk),
        "opened_at": instant(record.opened_at),
        "settled_at": instant(record.settled_at) if record.settled_at else None,
        "client_id": str(record.client_id),
        "user_id": str(record.user_id),
        "key_id": str(record.key_id) if record.key_id else None,
        "cost_usd": None if record.cost is None else str(decimal(record.cost)),
        "caller_user": labels.get("user"),
        "metadata": labels.get("metadata"),
    }


def _left(records: Sequence[UsageRecord]) -> dict[UUID, list[LeftAttempt]]:
    """The attempts that were left at these calls, by call."""
    found: dict[UUID, list[LeftAttempt]] = defaultdict(list)
    ids = [each.pk for each in records]
    for attempt in LeftAttempt.objects.filter(record__in=ids).order_by("asked_at", "id"):
        found[attempt.record_id].append(attempt)
    # Nothing waits for a browser with a connection.
    release_connection()
    return found


def _left_row(record: UsageRecord, attempt: LeftAttempt) -> dict[str, Any]:
    """A line of its own for what a provider may bill and no person is charged."""
    return {
        **_row(record),
        "id": str(attempt.pk),
        "opened_at": instant(attempt.asked_at),
        "settled_at": instant(attempt.left_at),
        "provider": attempt.provider,
        "state": "left",
        "source": UsageRecord.Source.ESTIMATED.value,
        "end": UsageRecord.End.TIMEOUT.value,
        "input_tokens": attempt.input_tokens,
        "cached_input_tokens": 0,
        "cache_write_tokens": 0,
        "output_tokens": attempt.output_tokens,
        "reasoning_tokens": 0,
        "cost_usd": None if attempt.cost is None else str(decimal(attempt.cost)),
    }


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return dumps(value, ensure_ascii=False)
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
